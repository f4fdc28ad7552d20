"""Text as numbers: letters for Shakespeare, words for tweets, both as LEAF numbers them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from descant.data.errors import DataError

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_SPACE = LETTERS.index(" ")
_NUMBERS = np.full(0x110000, _SPACE, dtype=np.uint8)  # by code point; other letters count as spaces
_NUMBERS[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))


def letters(text: str) -> Tensor:
    """The place of every letter among LETTERS, [len(text)]."""
    points = np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4")
    return torch.from_numpy(_NUMBERS[points].astype(np.int64))


def words_of(text: str) -> list[str]:
    """The words and the punctuation marks of a tweet, in lower case."""
    return re.findall(r"[\w']+|[.,!?;]", text.lower())


def vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """The most frequent words, most frequent first; ties in the order of the alphabet."""
    counts = Counter(word for text in texts for word in words_of(text))
    chosen = sorted(counts, key=lambda word: (-counts[word], word))[:size]
    return {word: number for number, word in enumerate(chosen)}


def words(texts: Iterable[str], known: Mapping[str, int], unknown: int, length: int) -> Tensor:
    """The numbers of the first `length` words of each text, [M, length]; `unknown` fills and stands for others."""
    rows = [[known.get(word, unknown) for word in words_of(text)[:length]] for text in texts]
    return torch.tensor([row + [unknown] * (length - len(row)) for row in rows]).reshape(-1, length)


def read_glove(file: Path, wanted: Container[str]) -> tuple[dict[str, int], Tensor]:
    """The words of a file of GloVe vectors that are wanted, numbered, and their vectors, [words + 1, features].

    A line is a word and its numbers. The last vector, of zeros, is for all words that are not there.
    """
    known: dict[str, int] = {}
    vectors: list[list[float]] = []
    try:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                word, *numbers = line.rstrip().split(" ")
                if word in wanted and word not in known:
                    known[word] = len(vectors)
                    vectors.append([float(number) for number in numbers])
        table = torch.tensor(vectors, dtype=torch.float32).reshape(len(vectors), -1 if vectors else 0)
    except (OSError, ValueError) as error:
        raise DataError(f"it is not a file of GloVe vectors ({error})", file=file) from error
    if not known:
        raise DataError("it has none of the words of the data", file=file)
    return known, torch.cat([table, torch.zeros(1, table.shape[1])])
