"""Folders of pictures and archives of them are read alike, and nothing is unpacked."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.datasets.readers.pictures import read_pictures

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(2)


def write_pictures(folder: Path, classes: dict[str, int], shape: tuple[int, ...] = (8, 8)) -> dict[str, np.ndarray]:
    """Random pictures without loss (png), by 'class/name'."""
    held = {}
    for label, count in classes.items():
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = RNG.integers(0, 256, shape).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i:03d}.png")
            held[f"{label}/{i:03d}"] = pixels
    return held


def test_a_folder_is_a_class_in_the_order_of_the_alphabet(tmp_path: Path) -> None:
    held = write_pictures(tmp_path / "set", {"Hand": 3, "CXR": 2})
    (tmp_path / "set" / "README.md").write_text("not a picture")
    (tmp_path / "set" / "Hand" / "notes.txt").write_text("not one either")
    examples = read_pictures(tmp_path / "set", "set", grey=True)
    assert examples.targets.tolist() == [0, 0, 1, 1, 1] and examples.classes == 2
    expected = [held[key] for key in ("CXR/000", "CXR/001", "Hand/000", "Hand/001", "Hand/002")]
    np.testing.assert_array_equal(examples.inputs[:, 0].numpy(), np.stack(expected))


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_an_archive_is_read_as_its_folder_is(tmp_path: Path, kind: str) -> None:
    write_pictures(tmp_path / "set", {"Hand": 3, "CXR": 2})
    with tarfile.open(tmp_path / f"set.tar.{kind}", f"w:{kind}") as archive:
        for file in sorted((tmp_path / "set").rglob("*.png"), reverse=True):  # the order does not matter
            archive.add(file, file.relative_to(tmp_path))
    lying, packed = (read_pictures(tmp_path / where, "set", grey=True) for where in ("set", f"set.tar.{kind}"))
    assert torch.equal(lying.inputs, packed.inputs) and torch.equal(lying.targets, packed.targets)


def test_a_cut_archive_is_named(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", {"a": 30}, (32, 32))
    file = tmp_path / "set.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        archive.add(tmp_path / "set", "set")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError, match="damaged or cut short") as caught:
        read_pictures(file, "set", grey=True)
    assert caught.value.file == file


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", {"a": 2}, (32, 32))
    file = tmp_path / "set" / "a" / "001.png"
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match="not a picture that can be read") as caught:
        read_pictures(tmp_path / "set", "set", grey=True)
    assert caught.value.file == file


def test_colours_are_planes_and_a_size_is_the_middle_square(tmp_path: Path) -> None:
    pixels = np.zeros((4, 10, 3), np.uint8)
    pixels[:, 3:7] = (10, 20, 30)  # the middle square
    (tmp_path / "set" / "a").mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "set" / "a" / "x.png")
    examples = read_pictures(tmp_path / "set", "set", grey=False, size=2)
    assert examples.inputs.shape == (1, 3, 2, 2)
    assert examples.inputs[0].flatten(1).tolist() == [[10] * 4, [20] * 4, [30] * 4]


def test_pictures_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", {"a": 1}, (8, 8))
    write_pictures(tmp_path / "set", {"b": 1}, (9, 8))
    with pytest.raises(DataError, match="give a size"):
        read_pictures(tmp_path / "set", "set", grey=True)
    assert read_pictures(tmp_path / "set", "set", grey=True, size=4).inputs.shape == (2, 1, 4, 4)


def test_only_so_many_of_a_class_are_read(tmp_path: Path) -> None:
    write_pictures(tmp_path / "set", {"a": 5, "b": 1})
    assert read_pictures(tmp_path / "set", "set", grey=True, most=2).targets.tolist() == [0, 0, 1]


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no picture"):
        read_pictures(tmp_path, "set", grey=True)


def test_a_picture_in_an_archive_with_a_path_outside_writes_nothing(tmp_path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(stream, "png")
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("../outside/evil.png")
        member.size = len(stream.getvalue())
        archive.addfile(member, io.BytesIO(stream.getvalue()))
    before = sorted(tmp_path.parent.rglob("*"))
    assert len(read_pictures(tmp_path / "set.tar.gz", "set", grey=True)) == 1
    assert sorted(tmp_path.parent.rglob("*")) == before


@pytest.mark.slow
def test_the_real_medical_mnist(real: Callable[[str], Path]) -> None:
    [archive] = real("medical-mnist").glob("*.tar.*")
    examples = read_pictures(archive, "medical-mnist", grey=True)
    assert examples.inputs.shape[1:] == (1, 64, 64) and examples.classes == 6
    assert len(examples.targets.bincount().unique()) == 1 or len(examples) == 58_954
