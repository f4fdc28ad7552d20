"""Chars74K's npz, and npz files that are not what they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.data import DataError
from descant.datasets.readers.npz import read_chars74k


def write(folder: Path, **changed: Any) -> Path:
    arrays: dict[str, Any] = {
        "x": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
        "y": np.array([0, 1, 0], np.uint8),
        "writer": np.array([7, 2, 7], np.uint8),
        "classes": np.array(["0", "a"]),
    }
    file = folder / "chars74k_hnd_28x28.npz"
    np.savez(file, **(arrays | changed))
    return file


def test_volunteers_are_owners(tmp_path: Path) -> None:
    write(tmp_path)
    examples = read_chars74k(tmp_path)
    assert examples.inputs.shape == (3, 1, 2, 2) and examples.classes == 2
    assert examples.owner_names == ("volunteer 2", "volunteer 7")
    assert examples.owners is not None and examples.owners.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"y": np.array([0, 2, 0])},
        {"y": np.array([0, 1])},
        {"x": np.zeros((3, 2, 2))},
        {"classes": np.array([{"pickled": 1}], dtype=object)},
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = write(tmp_path, **changed)
    with pytest.raises(DataError) as caught:
        read_chars74k(tmp_path)
    assert caught.value.file == file


def test_the_real_chars74k(real: Callable[[str], Path]) -> None:
    examples = read_chars74k(real("chars74k-hnd"))
    assert len(examples) == 62 * 55 and len(examples.owner_names) == 55 and examples.classes == 62
    assert examples.targets.bincount().tolist() == [55] * 62
