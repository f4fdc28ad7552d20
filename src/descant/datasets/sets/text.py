"""Text: a speaking role or a Twitter account is a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.data.clients import Test, clients_of
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.partitions import Partition
from descant.datasets.readers.leaf import read_leaf, train_files, user_examples
from descant.datasets.readers.text import LETTERS, letters, read_glove, vocabulary, words, words_of
from descant.datasets.readers.tff import read_shakespeare
from descant.datasets.sources import folder_of
from descant.errors import SettingError


def shakespeare(
    *,
    partition: Partition | None = None,
    test: Test = "official",
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Shakespeare from LEAF's JSON: the letter after each 80; a speaking role a client (Caldas et al., 2018).

    Inputs are the numbers of letters, [80], among LEAF's 80; any other letter counts as a space.
    """

    def before(raw: list[Any]) -> Tensor:
        rows = [letters(text) for text in raw]
        if len({len(row) for row in rows}) > 1:
            raise DataError("its pieces of text are not of one length")
        return torch.stack(rows)

    def after(raw: list[Any]) -> Tensor:
        if any(len(letter) != 1 for letter in raw):
            raise DataError("a target is not one letter")
        return letters("".join(raw))

    examples = read_leaf(folder_of("shakespeare", root), "shakespeare", before, after, len(LETTERS))
    return clients_of(examples, partition, test=test, valid=valid, seed=seed)


def shakespeare_tff(
    *,
    length: int = 80,
    partition: Partition | None = None,
    test: Test = "official",
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Shakespeare from TensorFlow Federated's h5: after every letter the next; a speaking role a client.

    Inputs and targets are the numbers of `length` letters among LEAF's 80. Of the 715 roles, those whose training
    lines are shorter than one piece of length + 1 letters are left out. Needs the extra `data`.
    """
    if length < 1:
        raise SettingError(f"shakespeare-tff: length = {length!r}: it must be at least 1")
    examples = read_shakespeare(folder_of("shakespeare-tff", root), length)
    return clients_of(examples, partition, test=test, valid=valid, seed=seed, settings={"length": length})


def sent140(
    *,
    vocabulary_size: int = 10_000,
    length: int = 25,
    glove: Path | str | None = None,
    partition: Partition | None = None,
    test: Test = "official",
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Sentiment140 from LEAF's JSON: is a tweet positive; a Twitter account a client (Caldas et al., 2018).

    Inputs are the numbers of the first `length` words, [length], among the `vocabulary_size` most frequent words of
    the training files; the number after those stands for all other words, and fills short tweets. With `glove`, a
    file such as glove.6B.300d.txt, they are its vectors of all these files' words instead, [length, 300], and zeros
    for others, as in Fed+, which does not train them.
    """
    folder = folder_of("sent140", root)
    texts = [str(tweet[4]) for tweet in user_examples(train_files(folder))]
    known, vectors = vocabulary(texts, vocabulary_size), None
    if glove is not None:
        known, vectors = read_glove(Path(glove), {word for text in texts for word in words_of(text)})
    other = vocabulary_size if vectors is None else len(known)

    def tweets(raw: list[Any]) -> Tensor:
        return words((str(tweet[4]) for tweet in raw), known, other, length)  # [4]: the text

    def positive(raw: list[Any]) -> Tensor:
        return torch.tensor([int(int(label) > 0) for label in raw], dtype=torch.int64)  # 0 or 1; or 0 or 4

    examples = read_leaf(folder, "sent140", tweets, positive, 2)

    def embedded(*parts: Tensor) -> tuple[Tensor, ...]:
        return parts if vectors is None else tuple(vectors[tokens] for tokens in parts)

    settings = {
        "vocabulary_size": vocabulary_size,
        "length": length,
        "glove": None if glove is None else str(glove),
    }
    return clients_of(
        examples,
        partition,
        test=test,
        valid=valid,
        seed=seed,
        settings=settings,
        finish=embedded if glove else None,
    )
