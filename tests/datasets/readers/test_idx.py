"""idx files are read as they were written, and refused by name where they are not whole."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.data import DataError
from descant.datasets.readers.idx import EMNIST, read_emnist, read_idx, read_mnist, read_writers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", ["numbers", "numbers.gz"])
@pytest.mark.parametrize("kind", ["u1", "i4", "f4"])
def test_what_was_written_is_read(tmp_path: Path, write_idx: Callable[..., Path], name: str, kind: str) -> None:
    values = (RNG.random((5, 3, 2)) * 200).astype(kind)
    read = read_idx(write_idx(tmp_path / name, values, kind))
    assert read.shape == (5, 3, 2)
    np.testing.assert_array_equal(read.numpy(), values)


@given(data=st.data(), shape=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_no_cut_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: list[int]
) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    contents = bytes([0, 0, 8, len(shape)]) + sizes + bytes(int(np.prod(shape)))
    file = tmp_path_factory.mktemp("idx") / "x-idx-ubyte"
    file.write_bytes(contents)
    assert read_idx(file).shape == tuple(shape)
    file.write_bytes(contents[: data.draw(st.integers(0, len(contents) - 1))])
    with pytest.raises(DataError, match="x-idx-ubyte"):
        read_idx(file)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda whole: whole[:-1], "cut short"),
        (lambda whole: whole + b"\0", "too long"),
        (lambda whole: b"\x89PNG" + whole[4:], "begins with 89504e47"),
        (lambda whole: b"", "begins with nothing"),
        (lambda whole: whole[:2] + b"\x08\x01" + whole[4:], "with 3 axes"),
    ],
)
def test_a_spoilt_file_is_named(
    tmp_path: Path, write_idx: Callable[..., Path], spoil: Callable[[bytes], bytes], said: str
) -> None:
    file = write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros((4, 2, 2)))
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataError, match=said) as caught:
        read_idx(file, 3)
    assert caught.value.file == file and str(file) in str(caught.value)


def test_a_cut_gzip_file_is_named(tmp_path: Path, write_idx: Callable[..., Path]) -> None:
    file = write_idx(tmp_path / "x.gz", RNG.integers(0, 256, (50, 8)))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be decompressed") as caught:
        read_idx(file)
    assert caught.value.file == file
    file.write_bytes(b"not gzip at all")
    with pytest.raises(DataError, match="cannot be decompressed"):
        read_idx(file)


@pytest.mark.parametrize("gz", [False, True])
def test_mnist_is_its_training_part_and_then_its_test_part(
    tmp_path: Path, write_mnist: Callable[..., Path], gz: bool
) -> None:
    examples = read_mnist(write_mnist(tmp_path, gz=gz) / "mnist")
    assert len(examples) == 250 and examples.test_from == 200 and examples.classes == 10
    assert examples.inputs.shape == (250, 1, 28, 28) and examples.inputs.dtype == torch.uint8
    assert examples.inputs[:, 0, 3, 7].tolist() == list(range(250))
    assert examples.targets.tolist() == [n % 10 for n in range(250)]


def test_labels_that_do_not_fit_the_pictures_are_refused(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    folder = write_mnist(tmp_path) / "mnist"
    file = write_idx(folder / "t10k-labels-idx1-ubyte", np.zeros(49))
    with pytest.raises(DataError, match="49 labels for the 50 images") as caught:
        read_mnist(folder)
    assert caught.value.file == file
    write_idx(file, np.full(50, 10))
    with pytest.raises(DataError, match=r"label 10 is not in \[0, 10\)"):
        read_mnist(folder)


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.*descant data fetch mnist"):
        read_mnist(tmp_path / "mnist")


def test_a_file_of_the_published_size_must_have_the_published_checksum(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    folder = write_mnist(tmp_path) / "mnist"
    file = write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.zeros(10_000))
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="checksum") as caught:
        read_mnist(folder)
    assert caught.value.file == file


@pytest.mark.parametrize("split", EMNIST)
def test_emnist_is_turned_upright_and_counted_from_zero(
    tmp_path: Path, write_idx: Callable[..., Path], split: str
) -> None:
    first, classes = int(split == "letters"), EMNIST[split]
    pictures = RNG.integers(0, 256, (classes, 28, 28))
    for part in ("train", "test"):
        stem = f"emnist-{split}-{part}"
        write_idx(tmp_path / "gzip" / f"{stem}-images-idx3-ubyte.gz", pictures.transpose(0, 2, 1))
        write_idx(tmp_path / "gzip" / f"{stem}-labels-idx1-ubyte.gz", np.arange(classes) + first)
    examples = read_emnist(tmp_path, split)
    np.testing.assert_array_equal(examples.inputs[:classes, 0].numpy(), pictures)
    assert examples.targets.tolist() == 2 * list(range(classes))
    assert examples.classes == classes and examples.test_from == classes


def test_writers_are_the_third_column_of_qmnist(tmp_path: Path, write_idx: Callable[..., Path]) -> None:
    table = RNG.integers(0, 4000, (30, 8))
    write_idx(tmp_path / "qmnist-train-labels-idx2-int.gz", table, "i4")
    assert read_writers(tmp_path).tolist() == table[:, 2].tolist()
    write_idx(tmp_path / "qmnist-train-labels-idx2-int.gz", table[:, :5], "i4")
    with pytest.raises(DataError, match="5 columns"):
        read_writers(tmp_path)


def test_the_real_mnist_and_its_writers(real: Callable[[str], Path]) -> None:
    examples = read_mnist(real("mnist"))
    assert len(examples) == 70_000 and examples.test_from == 60_000
    counts = torch.bincount(examples.targets[:60_000])
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # as published
    assert abs(examples.inputs[:60_000].float().mean().item() / 255 - 0.1307) < 1e-4
    writers = read_writers(real("qmnist-labels"))
    sizes = torch.bincount(writers)
    sizes = sizes[sizes > 0]
    assert len(sizes) == 539 and int(sizes.min()) == 19 and int(sizes.max()) == 131


def test_a_damaged_real_file_is_noticed(tmp_path: Path, real: Callable[[str], Path]) -> None:
    contents = bytearray(gzip.decompress((real("fashion-mnist") / "t10k-labels-idx1-ubyte.gz").read_bytes()))
    contents[100] ^= 1
    file = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte"
    file.parent.mkdir()
    file.write_bytes(contents)
    with pytest.raises(DataError, match="checksum"):
        read_idx(file)
