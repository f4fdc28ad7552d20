"""CIFAR-10's two versions hold the same pictures, and are read the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.datasets.readers.cifar import read_binary, read_cifar10, read_python

RNG = np.random.default_rng(1)
NAMES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def write_both(folder: Path, each: int = 4) -> dict[str, tuple[np.ndarray, list[int]]]:
    """The same small batches in both versions, in the folders that the archives have."""
    held = {}
    for name in NAMES:
        pixels, labels = RNG.integers(0, 256, (each, 3072)).astype(np.uint8), RNG.integers(0, 10, each).tolist()
        held[name] = pixels, labels
        for version in ("bin", "py"):
            (folder / version / f"cifar-10-batches-{version}").mkdir(parents=True, exist_ok=True)
        records = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
        (folder / "bin" / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(records.tobytes())
        batch = {b"batch_label": name.encode(), b"labels": labels, b"data": pixels, b"filenames": [b"a.png"] * each}
        (folder / "py" / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, 2))
    return held


def test_both_versions_are_read_alike(tmp_path: Path) -> None:
    held = write_both(tmp_path)
    binary, python = read_cifar10(tmp_path / "bin"), read_cifar10(tmp_path / "py")
    assert torch.equal(binary.inputs, python.inputs) and torch.equal(binary.targets, python.targets)
    assert binary.test_from == python.test_from == 20 and len(binary) == 24
    pixels, labels = held["data_batch_2"]
    np.testing.assert_array_equal(binary.inputs[4:8].numpy(), pixels.reshape(4, 3, 32, 32))
    assert binary.targets[4:8].tolist() == labels


def test_a_cut_batch_is_named(tmp_path: Path) -> None:
    write_both(tmp_path)
    file = tmp_path / "bin" / "cifar-10-batches-bin" / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="12291 bytes, and a record of CIFAR-10 has 3073") as caught:
        read_cifar10(tmp_path / "bin")
    assert caught.value.file == file
    file = tmp_path / "py" / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="not a whole pickle") as caught:
        read_cifar10(tmp_path / "py")
    assert caught.value.file == file


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]},
        {b"data": np.zeros((1, 3071), np.uint8), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.int32), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]},
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path: Path, batch: object) -> None:
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(DataError) as caught:
        read_python(file)
    assert caught.value.file == file


def test_labels_outside_the_classes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1.bin"
    file.write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(DataError, match=r"outside \[0, 10\)"):
        read_binary(file)


@pytest.mark.slow
def test_the_real_cifar10(real: Callable[[str], Path]) -> None:
    examples = read_cifar10(real("cifar10"))
    assert examples.inputs.shape == (60_000, 3, 32, 32) and examples.test_from == 50_000
    assert torch.bincount(examples.targets[:50_000]).tolist() == [5000] * 10
    assert torch.bincount(examples.targets[50_000:]).tolist() == [1000] * 10
    assert examples.targets[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # as published
