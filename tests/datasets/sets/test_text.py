"""Text data sets, from small files in their formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from descant.data import DataError
from descant.datasets import DATASETS
from descant.datasets.readers.text import LETTERS
from descant.errors import SettingError

WriteLeaf = Callable[..., Path]


def test_shakespeare_from_leaf_predicts_the_next_letter(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    text = "Shall I compare thee to a summer's day? Thou art more lovely"
    pieces = ([text[i : i + 10] for i in range(40)], [text[i + 10] for i in range(40)])
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part / "a.json", {"SONNETS_POET": pieces})
    data = DATASETS["shakespeare"](root=tmp_path)
    assert data.input_shape == (10,) and data.classes == 80 and data.test.sizes.tolist() == [40]
    read = ["".join(LETTERS[n] for n in [*x, y]) for x, y in zip(data.test.inputs, data.test.targets, strict=True)]
    assert read == [text[i : i + 11] for i in range(40)]


def test_shakespeare_refuses_pieces_of_different_lengths(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    file = write_leaf(tmp_path / "shakespeare" / "train" / "a.json", {"POET": (["abc", "ab"], ["d", "e"])})
    with pytest.raises(DataError, match="not of one length") as caught:
        DATASETS["shakespeare"](root=tmp_path)
    assert caught.value.file == file and caught.value.client == "POET"
    write_leaf(file, {"POET": (["abc"], ["de"])})
    with pytest.raises(DataError, match="not one letter"):
        DATASETS["shakespeare"](root=tmp_path)


def tweet(text: str) -> list[str]:
    return ["1467810369", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", "someone", text, "training"]


def test_sent140_numbers_the_words_of_its_training_tweets(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    train = {"ann": ([tweet("good good day"), tweet("bad day")], ["4", "0"]), "bob": ([tweet("Good!")], ["1"])}
    write_leaf(tmp_path / "sent140" / "train" / "a.json", train)
    write_leaf(tmp_path / "sent140" / "test" / "a.json", {"ann": ([tweet("a bad night")], [0])})
    data = DATASETS["sent140"](vocabulary_size=3, length=4, valid=0.0, root=tmp_path)
    assert data.clients == ("ann", "bob") and data.classes == 2
    # good: 3 times, day: 2, then '!' before 'bad'; 3 is every other word
    rows = {tuple(x.tolist()): int(y) for x, y in zip(data.train.inputs, data.train.targets, strict=True)}
    assert rows == {(0, 0, 1, 3): 1, (3, 1, 3, 3): 0, (0, 2, 3, 3): 1}
    assert data.test.inputs.tolist() == [[3, 3, 3, 3]]  # nothing is learnt from test tweets


def test_sent140_takes_the_vectors_of_a_glove_file(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    write_leaf(tmp_path / "sent140" / "train" / "a.json", {"ann": ([tweet("good odd day"), tweet("day")], [1, 0])})
    glove = tmp_path / "glove.txt"
    glove.write_text("the 9 9 9\nday 1 2 3\ngood 4 5 6\n")
    data = DATASETS["sent140"](length=4, glove=glove, test=0.0, valid=0.0, root=tmp_path)
    good, day, none = [4.0, 5.0, 6.0], [1.0, 2.0, 3.0], [0.0] * 3
    rows = {int(y): x.tolist() for x, y in zip(data.train.inputs, data.train.targets, strict=True)}
    assert rows == {1: [good, none, day, none], 0: [day, none, none, none]}
    for spoilt in ("day 1 2 x\n", "day 1 2\ngood 1\n", "the 1 2 3\n"):
        glove.write_text(spoilt)
        with pytest.raises(DataError) as caught:
            DATASETS["sent140"](glove=glove, root=tmp_path)
        assert caught.value.file == glove


def test_shakespeare_tff_leaves_out_roles_without_a_piece(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "shakespeare-tff").mkdir()
    for part in ("train", "test"):
        with h5py.File(tmp_path / "shakespeare-tff" / f"shakespeare_{part}.h5", "w") as opened:
            long, short = (
                [b"To be, or not to be"] * 3,
                [b"Hm"] if part == "train" else [b"A hit, a very palpable hit"],
            )
            opened.create_dataset("examples/HAMLET/snippets", data=long)
            opened.create_dataset("examples/OSRIC/snippets", data=short)
    data = DATASETS["shakespeare-tff"](length=5, root=tmp_path)
    assert data.clients == ("HAMLET",) and data.test.sizes.tolist() == [9]
    assert data.counts().sum() == 5 * data.train.sizes.sum()
    with pytest.raises(SettingError, match="length = 0"):
        DATASETS["shakespeare-tff"](length=0, root=tmp_path)
