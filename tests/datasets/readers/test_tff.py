"""Shakespeare's h5: each role's lines in pieces, every letter with the next as its target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from descant.data import DataError
from descant.datasets.readers.text import LETTERS
from descant.datasets.readers.tff import read_shakespeare

h5py = pytest.importorskip("h5py")


def write_h5(file: Path, roles: dict[str, list[str]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as opened:
        for role, lines in roles.items():
            opened.create_dataset(f"examples/{role}/snippets", data=[line.encode() for line in lines])


def text_of(numbers: list[int]) -> str:
    return "".join(LETTERS[number] for number in numbers)


def test_pieces_follow_each_other_and_targets_are_the_next_letters(tmp_path: Path) -> None:
    write_h5(tmp_path / "shakespeare_train.h5", {"HAMLET": ["To be, or", "not to be"], "OSRIC": ["Hm"]})
    write_h5(tmp_path / "shakespeare_test.h5", {"HAMLET": ["Words, words"], "OSRIC": ["A hit, a hit"]})
    examples = read_shakespeare(tmp_path, 5)
    whole = "To be, or\nnot to be"
    pieces = [whole[at : at + 6] for at in (0, 6, 12)]
    assert [text_of(row) for row in examples.inputs[:3].tolist()] == [piece[:5] for piece in pieces]
    assert [text_of(row) for row in examples.targets[:3].tolist()] == [piece[1:] for piece in pieces]
    assert examples.test_from == 3 and examples.owner_names == ("HAMLET", "OSRIC")
    assert examples.owners is not None and examples.owners.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_h5(tmp_path / "shakespeare_train.h5", {"HAMLET": ["To be, or"]})
    file = tmp_path / "shakespeare_test.h5"
    for contents in (b"", b"no h5", (tmp_path / "shakespeare_train.h5").read_bytes()[:1000]):
        file.write_bytes(contents)
        with pytest.raises(DataError, match="h5 file") as caught:
            read_shakespeare(tmp_path, 5)
        assert caught.value.file == file


def test_too_short_lines_are_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_h5(tmp_path / f"shakespeare_{part}.h5", {"OSRIC": ["Hm"]})
    with pytest.raises(DataError, match="no role has 6 letters"):
        read_shakespeare(tmp_path, 5)


@pytest.mark.slow
def test_the_real_shakespeare(real: Callable[[str], Path]) -> None:
    examples = read_shakespeare(real("shakespeare-tff"), 80)
    assert len(examples.owner_names) == 715
    assert (examples.inputs[:, 1:] == examples.targets[:, :-1]).all()
