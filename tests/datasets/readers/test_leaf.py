"""LEAF's JSON: users are clients, in the order of the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from descant.data import DataError
from descant.datasets.readers.leaf import read_leaf

WriteLeaf = Callable[..., Path]


def read(folder: Path, classes: int | None = 10) -> Any:
    return read_leaf(folder, "set", lambda x: torch.tensor(x, dtype=torch.float32), torch.tensor, classes)


def test_users_of_several_files_are_clients_by_name(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    write_leaf(tmp_path / "train" / "all_data_0.json", {"ann": ([[1], [2]], [1, 2]), "bob": ([[3]], [3])})
    write_leaf(tmp_path / "train" / "all_data_1.json", {"eve": ([[4]], [4]), "ann": ([[5]], [5])})
    write_leaf(tmp_path / "test" / "all_data_0.json.gz", {"bob": ([[6]], [6]), "ann": ([[7]], [7])})
    examples = read(tmp_path)
    assert examples.owner_names == ("ann", "bob", "eve")
    assert examples.targets.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert examples.inputs.flatten().tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert examples.owners.tolist() == [0, 0, 1, 2, 0, 1, 0] and examples.test_from == 5


def test_without_test_files_there_is_no_official_test_part(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    write_leaf(tmp_path / "mytrain.json", {"ann": ([[1]], [1])})
    assert read(tmp_path).test_from is None


@pytest.mark.parametrize(
    ("changed", "said", "client"),
    [
        ({"num_samples": [3]}, "2 inputs, 2 targets, and 3 announced", "ann"),
        ({"num_samples": []}, "1 users, but 0 numbers", None),
        ({"users": ["eve"]}, "LEAF's form", None),
        ({"user_data": {"ann": {"x": [[1], [2]]}}}, "LEAF's form", None),
        ({"user_data": {"ann": {"x": [[1], [2]], "y": [1, 10]}}}, r"outside \[0, 10\)", "ann"),
        ({"user_data": {"ann": {"x": [[1], [2, 3]], "y": [1, 1]}}}, "not those of set", "ann"),
        ({"users": [], "num_samples": []}, "no examples", None),
    ],
)
def test_a_spoilt_file_is_named(
    tmp_path: Path, write_leaf: WriteLeaf, changed: dict[str, Any], said: str, client: str | None
) -> None:
    file = write_leaf(tmp_path / "train" / "a.json", {"ann": ([[1], [2]], [1, 2])}, **changed)
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path)
    assert caught.value.file == file and caught.value.client == client


def test_a_cut_file_is_named(tmp_path: Path, write_leaf: WriteLeaf) -> None:
    file = write_leaf(tmp_path / "train" / "a.json", {"ann": ([[1], [2]], [1, 2])})
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(DataError, match="not JSON") as caught:
        read(tmp_path)
    assert caught.value.file == file


def test_missing_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"LEAF .*femnist/preprocess.sh"):
        read(tmp_path / "femnist")
