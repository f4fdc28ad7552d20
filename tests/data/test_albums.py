"""A folder of pictures: clients, classes and parts as they lie, and what lies wrong refused by client and file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from descant.data import DataError, FederatedData
from descant.errors import SettingError

Image = pytest.importorskip("PIL.Image")


def draw(path: Path, value: int, shape: tuple[int, ...] = (4, 4)) -> None:
    """A picture of one shade."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, value, dtype=np.uint8)).save(path)


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Three hospitals whose shades tell the picture; none of them holds all classes."""
    shade = 0
    for client, label in (
        ("Ulm", "well"),
        ("Ulm", "ill"),
        ("Bonn", "well"),
        ("Ward 10", "acute"),
        ("Ward 9", "ill"),
    ):
        for i in range(5):
            shade += 1
            draw(tmp_path / client / label / f"{i}.png", shade)
    return tmp_path


def shades(data: FederatedData, k: int) -> dict[int, str]:
    """The shades that a client holds, in all parts, with their classes."""
    found = {}
    for part in (data.train, data.valid, data.test):
        for picture, target in zip(*part.client(k), strict=True):
            found[round(float(picture.mean()) * 255)] = data.class_names[int(target)]
    return found


def test_clients_and_classes_are_the_folders(hospitals: Path) -> None:
    data = FederatedData.from_folder(hospitals)
    assert data.clients == ("Bonn", "Ulm", "Ward 9", "Ward 10")
    assert data.class_names == ("acute", "ill", "well") and data.classes == 3
    assert data.input_shape == (3, 4, 4) and data.train.inputs.dtype == torch.float32
    assert shades(data, 0) == dict.fromkeys(range(11, 16), "well")
    assert shades(data, 1) == dict.fromkeys(range(1, 6), "well") | dict.fromkeys(range(6, 11), "ill")
    assert shades(data, 2) == dict.fromkeys(range(21, 26), "ill")
    assert data.settings["folder"] == str(hospitals)


def test_the_split_is_that_of_arrays(hospitals: Path) -> None:
    data = FederatedData.from_folder(hospitals, grey=True, seed=3, test=0.4)
    order = {"Bonn": [11], "Ulm": [6, 1], "Ward 9": [21], "Ward 10": [16]}  # in Ulm 'ill' comes before 'well'
    place = {"Bonn": [2], "Ulm": [1, 2], "Ward 9": [1], "Ward 10": [0]}
    arrays = {}
    for name, firsts in order.items():
        values = np.concatenate([np.arange(first, first + 5) for first in firsts]).astype(np.float32) / 255
        pixels = np.broadcast_to(values[:, None, None, None], (len(values), 1, 4, 4))
        arrays[name] = (pixels, np.repeat(place[name], 5))
    expected = FederatedData.from_arrays(arrays, seed=3, test=0.4)
    for part in ("train", "valid", "test"):
        torch.testing.assert_close(data.part(part).inputs, expected.part(part).inputs)
        assert torch.equal(data.part(part).targets, expected.part(part).targets)


def test_clients_may_be_in_parts(tmp_path: Path) -> None:
    for k, (client, part) in enumerate([("a", "train"), ("a", "test"), ("b", "train"), ("b", "valid")]):
        for label in ("x", "y"):
            draw(tmp_path / client / part / label / "one.jpg", 10 * k, (8, 8))
    data = FederatedData.from_folder(tmp_path, grey=True)
    assert [data.part(name).sizes.tolist() for name in ("train", "valid", "test")] == [[2, 2], [0, 2], [2, 0]]
    assert data.input_shape == (1, 8, 8) and data.class_names == ("x", "y")
    assert (data.test.inputs * 255).round().unique().tolist() == [10]


def test_pictures_of_many_sizes_are_scaled(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "x" / "1.png", 7, (6, 9))
    draw(tmp_path / "a" / "y" / "2.PNG", 9, (20, 12, 3))
    data = FederatedData.from_folder(tmp_path, size=5, test=0, valid=0)
    assert data.input_shape == (3, 5, 5) and data.settings["size"] == 5
    assert sorted(shades(data, 0)) == [7, 9]
    with pytest.raises(
        DataError, match=r"it is of 20 x 12 pixels, and .*1\.png of 6 x 9: give a size, as in size=64"
    ) as e:
        FederatedData.from_folder(tmp_path)
    assert e.value.client == "a" and e.value.file == tmp_path / "a" / "y" / "2.PNG"
    with pytest.raises(SettingError, match="size = 0: it must be a positive number"):
        FederatedData.from_folder(tmp_path, size=0)


def test_hidden_files_and_other_files_are_left_alone(hospitals: Path) -> None:
    (hospitals / ".thumbnails" / "x").mkdir(parents=True)
    draw(hospitals / "Ulm" / "ill" / ".hidden.png", 200)
    (hospitals / "Ulm" / "ill" / "notes.txt").write_text("about these")
    (hospitals / "README.md").write_text("about all")
    assert FederatedData.from_folder(hospitals).clients == ("Bonn", "Ulm", "Ward 9", "Ward 10")
    assert 200 not in shades(FederatedData.from_folder(hospitals), 1)


def test_tiny_clients_are_left_out_before_the_split(hospitals: Path) -> None:
    draw(hospitals / "Praxis" / "ill" / "1.png", 99)
    with pytest.raises(DataError, match=r"client 'Praxis': 1 example\(s\), .* leave none to train on"):
        FederatedData.from_folder(hospitals)
    data = FederatedData.from_folder(hospitals, least=2, tiny="drop")
    assert "Praxis" not in data.clients and "'Praxis' (1)" in data.notes[0]
    pooled = FederatedData.from_folder(hospitals, least=6, tiny="pool")
    assert pooled.clients == ("Ulm", "pooled") and len(shades(pooled, 1)) == 16


def refused(folder: Path, message: str, client: str, file: Path | None = None) -> None:
    with pytest.raises(DataError, match=message) as caught:
        FederatedData.from_folder(folder)
    assert caught.value.client == client and (file is None or caught.value.file == file)


def test_pictures_that_lie_in_no_class(hospitals: Path) -> None:
    draw(hospitals / "Ulm" / "loose.png", 1)
    refused(
        hospitals, "lies in no folder of its class: .* Ulm/CLASS/loose.png", "Ulm", hospitals / "Ulm" / "loose.png"
    )


def test_parts_that_are_none(hospitals: Path) -> None:
    draw(hospitals / "Ulm" / "train" / "ill" / "1.png", 1)
    refused(hospitals, "it lies beside train: give folders by class, or train, valid and test", "Ulm")


def test_pictures_that_lie_in_a_part_itself(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "train" / "1.png", 1)
    refused(tmp_path, "lies in no folder of its class: .* a/train/CLASS/1.png", "a")


def test_one_client_in_parts_and_one_whole(hospitals: Path) -> None:
    draw(hospitals / "A" / "train" / "ill" / "1.png", 1)
    refused(hospitals, "comes in parts, where client .* comes as .inputs, targets.", "A")


def test_a_client_without_pictures(hospitals: Path) -> None:
    (hospitals / "Empty" / "ill").mkdir(parents=True)
    refused(hospitals, "no picture .* lies in its folders by class", "Empty", hospitals / "Empty")


def test_a_damaged_picture(hospitals: Path) -> None:
    file = hospitals / "Bonn" / "well" / "2.png"
    file.write_bytes(file.read_bytes()[:40])
    refused(hospitals, "it is not a picture that can be read", "Bonn", file)


def test_a_picture_of_a_kind_that_is_not_read(hospitals: Path) -> None:
    (hospitals / "Bonn" / "well" / "scan.tif").write_bytes(b"II*")
    refused(hospitals, r"only \.jpeg, \.jpg, \.png files are read: convert it", "Bonn")


def test_pictures_of_16_bits_would_be_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "a" / "x" / "1.png"
    file.parent.mkdir(parents=True)
    Image.fromarray(np.array([[0, 300], [1000, 65_000]], dtype=np.uint16)).save(file)
    refused(tmp_path, "its pixels have more than 8 bits: convert it to 8 bits", "a", file)


def test_files_and_pictures_are_two_forms(hospitals: Path, tmp_path: Path) -> None:
    x: Any = np.zeros((5, 2), np.float32)
    np.savez(hospitals / "ann.npz", inputs=x, targets=np.arange(5) % 2)
    with pytest.raises(DataError, match=r"holds \.npz files \(ann\.npz\) and pictures .*: keep one form"):
        FederatedData.from_folder(hospitals)
    (tmp_path / "alone").mkdir()
    np.savez(tmp_path / "alone" / "ann.npz", inputs=x, targets=np.arange(5) % 2)
    for option in ({"size": 4}, {"grey": True}):
        with pytest.raises(SettingError, match=r"size and grey are for pictures, and the folder holds \.npz files"):
            FederatedData.from_folder(tmp_path / "alone", **option)  # type: ignore[arg-type]
