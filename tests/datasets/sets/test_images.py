"""The data sets of pictures, from small files in their formats."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.catalog import build
from descant.data import DataError
from descant.data.partitions import IID, Labels
from descant.datasets import DATASETS
from descant.errors import SettingError

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_pictures_are_dealt_by_a_partition(tmp_path: Path, write_mnist: Callable[..., Path], name: str) -> None:
    root = write_mnist(tmp_path, name)
    data = DATASETS[name](partition=Labels(clients=10, labels=2), root=root)
    assert len(data) == 10 and data.classes == 10 and data.name == name and data.input_shape == (1, 28, 28)
    assert ((data.counts() > 0).sum(1) <= 2).all()
    held = torch.cat([data.part(part).inputs[:, 0, 0, 0] for part in ("train", "valid", "test")])
    assert (held * 255).round().sort().values.tolist() == [float(n) for n in range(250)]
    with pytest.raises(SettingError, match=f"{name}: partition = None"):
        DATASETS[name](root=root)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_clients_train_on_a_few_of_their_pictures(
    tmp_path: Path, write_mnist: Callable[..., Path], name: str
) -> None:
    root, partition = write_mnist(tmp_path, name), IID(clients=10)
    whole, few = (DATASETS[name](partition=partition, root=root, most=most) for most in (None, 3))
    assert few.train.sizes.tolist() == [3] * 10 and few.settings["most"] == 3
    assert few.test.inputs.equal(whole.test.inputs) and few.valid.inputs.equal(whole.valid.inputs)
    with pytest.raises(SettingError, match="most = 0: it must be a positive number"):
        DATASETS[name](partition=partition, root=root, most=0)


def test_a_settings_file_names_set_and_partition(
    tmp_path: Path, write_mnist: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESCANT_DATA", str(write_mnist(tmp_path, gz=True)))
    spec = {"name": "mnist", "partition": {"name": "iid", "clients": 5}, "mean": 0.5, "std": 0.25, "seed": 3}
    data = build("datasets", spec)
    assert len(data) == 5 and data.settings["seed"] == 3 and data.settings["mean"] == 0.5
    low, high = data.train.inputs.aminmax()
    assert low >= -2 and high <= 2 and low < -1.5


def test_the_official_test_part_of_mnist_is_kept(tmp_path: Path, write_mnist: Callable[..., Path]) -> None:
    data = DATASETS["mnist"](partition=IID(clients=3), test="official", root=write_mnist(tmp_path))
    assert (data.test.inputs[:, 0, 0, 0] * 255).round().sort().values.tolist() == [
        float(n) for n in range(200, 250)
    ]


def test_emnist_has_as_many_classes_as_its_split(tmp_path: Path, write_idx: Callable[..., Path]) -> None:
    for part in ("train", "test"):
        stem = f"emnist-letters-{part}"
        write_idx(tmp_path / "emnist" / f"{stem}-images-idx3-ubyte.gz", np.zeros((52, 28, 28)))
        write_idx(tmp_path / "emnist" / f"{stem}-labels-idx1-ubyte.gz", np.arange(52) % 26 + 1)
    data = DATASETS["emnist"](split="letters", partition=IID(clients=4), root=tmp_path)
    assert data.classes == 26 and data.settings["split"] == "letters"


def test_cifar10_from_its_binary_version(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = np.concatenate([np.arange(10)[:, None], RNG.integers(0, 256, (10, 3072))], axis=1).astype(
            np.uint8
        )
        (tmp_path / "cifar10" / f"{name}.bin").write_bytes(records.tobytes())
    data = DATASETS["cifar10"](partition=IID(clients=4), root=tmp_path)
    assert data.input_shape == (3, 32, 32) and int(data.train.sizes.sum()) == 40


@pytest.mark.parametrize("packed", [False, True])
def test_medical_mnist_from_folders_and_from_an_archive(tmp_path: Path, packed: bool) -> None:
    image = pytest.importorskip("PIL.Image")
    where = tmp_path / ("elsewhere" if packed else "medical-mnist")
    for label in ("AbdomenCT", "Hand"):
        (where / "MedNIST" / label).mkdir(parents=True)
        for i in range(6):
            pixels = RNG.integers(0, 256, (64, 64)).astype(np.uint8)
            image.fromarray(pixels).save(where / "MedNIST" / label / f"{i}.jpeg")
    if packed:
        (tmp_path / "medical-mnist").mkdir()
        with tarfile.open(tmp_path / "medical-mnist" / "MedNIST.tar.gz", "w:gz") as archive:
            archive.add(where / "MedNIST", "MedNIST")
    data = DATASETS["medical-mnist"](partition=IID(clients=2), root=tmp_path)
    assert data.input_shape == (1, 64, 64) and data.classes == 2 and int(data.counts().sum()) == 8


@pytest.mark.slow
def test_imagenet_is_a_hundred_clients_with_fifty_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(DataError, match=r"image-net\.org"):
        DATASETS["imagenet"](root=tmp_path)
    train = tmp_path / "imagenet" / "train"
    first = train / "n00000"
    first.mkdir(parents=True)
    for i in range(5):
        image.fromarray(RNG.integers(0, 256, (6, 5, 3)).astype(np.uint8)).save(first / f"{i}.JPEG", "jpeg")
    for label in range(1, 1000):  # hard links: a thousand classes cost nothing
        (train / f"n{label:05d}").mkdir()
        for i in range(5):
            os.link(first / f"{i}.JPEG", train / f"n{label:05d}" / f"{i}.JPEG")
    data = DATASETS["imagenet"](size=2, test=0.0, valid=0.0, root=tmp_path)
    assert len(data) == 100 and data.input_shape == (3, 2, 2) and data.classes == 1000
    assert ((data.counts() > 0).sum(1) == 50).all()
