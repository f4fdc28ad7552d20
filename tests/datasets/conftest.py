"""Small files in the formats of the real data sets, written by the tests themselves."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.datasets.sources import folder_of

WriteIdx = Callable[..., Path]
_CODES = {"u1": 0x08, "i4": 0x0C, "f4": 0x0D}


@pytest.fixture
def write_idx() -> WriteIdx:
    """Write an array as an idx file, gzipped where the name says so."""

    def write(file: Path, values: Any, kind: str = "u1") -> Path:
        array = np.asarray(values).astype(f">{kind}")
        sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
        contents = bytes([0, 0, _CODES[kind], array.ndim]) + sizes + array.tobytes()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(contents) if file.suffix == ".gz" else contents)
        return file

    return write


@pytest.fixture
def write_mnist(write_idx: WriteIdx) -> Callable[..., Path]:
    """Write the four files of a small MNIST: every picture shows its own number in all pixels."""

    def write(root: Path, name: str = "mnist", train: int = 200, test: int = 50, gz: bool = False) -> Path:
        end = ".gz" if gz else ""
        for part, first, count in (("train", 0, train), ("t10k", train, test)):
            numbers = np.arange(first, first + count)
            pictures = np.broadcast_to((numbers % 256)[:, None, None], (count, 28, 28))
            write_idx(root / name / f"{part}-images-idx3-ubyte{end}", pictures)
            write_idx(root / name / f"{part}-labels-idx1-ubyte{end}", numbers % 10)
        return root

    return write


@pytest.fixture
def write_leaf() -> Callable[..., Path]:
    """Write a file in LEAF's form from the x and y of every user."""

    def write(file: Path, users: dict[str, tuple[list[Any], list[Any]]], /, **changed: Any) -> Path:
        held = {
            "users": list(users),
            "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(held | changed).encode()
        file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
        return file

    return write


@pytest.fixture
def real() -> Callable[[str], Path]:
    """The folder of a real data set; where it is not there, the test is skipped."""

    def folder(name: str) -> Path:
        found = folder_of(name)
        if not found.is_dir():
            pytest.skip(f"the real files of {name} are not in {found} (set DESCANT_DATA, or fetch them)")
        return found

    return folder
