"""Pictures without clients of their own: a partition says who holds what.

Pixels lie in [0, 1], and become (x - mean) / std where those are given. `test` is the share of every client's
pictures that it is tested on, out of the official training and test parts together, or "official": then a client is
tested on those of its pictures that lie in the official test part. `root` is where the files' folders lie.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from descant.data.clients import Test, clients_of
from descant.data.examples import Examples
from descant.data.federated import FederatedData
from descant.data.partitions import Labels, Partition
from descant.datasets.readers.cifar import read_cifar10
from descant.datasets.readers.idx import read_emnist, read_mnist
from descant.datasets.readers.pictures import read_pictures
from descant.datasets.sources import find, folder_of, missing
from descant.errors import SettingError

Split = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]


def mnist(
    *,
    partition: Partition | None = None,
    test: Test = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    most: int | None = None,
    root: Path | str | None = None,
) -> FederatedData:
    """MNIST: 70,000 handwritten digits, 28 x 28, dealt by a partition (LeCun et al., 1998).

    With `most`, a client trains on that many at most, drawn by the seed; what it validates and tests on stays.
    """
    examples = read_mnist(folder_of("mnist", root))
    return pictures(examples, partition, test, valid, seed, mean, std, most)


def fashion_mnist(
    *,
    partition: Partition | None = None,
    test: Test = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    most: int | None = None,
    root: Path | str | None = None,
) -> FederatedData:
    """Fashion-MNIST: 70,000 pictures of ten kinds of clothes, 28 x 28, dealt by a partition (Xiao et al., 2017).

    With `most`, a client trains on that many at most, drawn by the seed; what it validates and tests on stays.
    """
    examples = read_mnist(folder_of("fashion-mnist", root), "fashion-mnist")
    return pictures(examples, partition, test, valid, seed, mean, std, most)


def emnist(
    *,
    split: Split = "balanced",
    partition: Partition | None = None,
    test: Test = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    root: Path | str | None = None,
) -> FederatedData:
    """EMNIST: handwritten letters and digits, 28 x 28, dealt by a partition (Cohen et al., 2017).

    The splits are byclass (62 classes, 814,255 pictures), bymerge (47), balanced (47; 131,600), letters (26,
    counted from 0), digits and mnist (10 each). Pictures are turned upright. Who wrote them is not in these files.
    """
    examples = read_emnist(folder_of("emnist", root), split)
    return pictures(examples, partition, test, valid, seed, mean, std, split=split)


def cifar10(
    *,
    partition: Partition | None = None,
    test: Test = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    most: int | None = None,
    root: Path | str | None = None,
) -> FederatedData:
    """CIFAR-10: 60,000 colour pictures of ten kinds of things, 32 x 32, dealt by a partition (Krizhevsky, 2009).

    From the binary version's files, or the python version's, of which nothing is unpickled. With `most`, a client
    trains on that many at most, drawn by the seed; what it validates and tests on stays.
    """
    examples = read_cifar10(folder_of("cifar10", root))
    return pictures(examples, partition, test, valid, seed, mean, std, most)


def medical_mnist(
    *,
    partition: Partition | None = None,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    root: Path | str | None = None,
) -> FederatedData:
    """Medical-MNIST: grey pictures of six kinds of scans, 64 x 64, dealt by a partition (MedNIST).

    From folders of JPEGs, one a class, or a tar archive of them (the whole set has 58,954 pictures). Classes are
    numbered in the order of the alphabet. Needs the extra `data`.
    """
    folder = folder_of("medical-mnist", root)
    archives = sorted(folder.glob("*.tar.*"))
    classes = [path for path in (*folder.glob("*/"), *folder.glob("*/*/")) if path.name == "AbdomenCT"]
    where = classes[0].parent if classes else archives[0] if archives else find(folder, "MedNIST.tar.gz")
    examples = read_pictures(where, "medical-mnist", grey=True)
    return pictures(examples, partition, test, valid, seed, mean, std)


def imagenet(
    *,
    partition: Partition | None = None,
    size: int = 64,
    per_class: int | None = 100,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    root: Path | str | None = None,
) -> FederatedData:
    """ImageNet, for who has it: 100 clients with 50 of the 1,000 classes each (lp-proj, section 6.2).

    From the folders of training pictures in imagenet/train. Their middle squares are scaled to `size` x `size`, and
    of every class only the first `per_class` are read: all 1.28 million at 64 x 64 are 63 GB of floats. The paper
    gives neither. Needs the extra `data`.
    """
    where = folder_of("imagenet", root) / "train"
    if not where.is_dir():
        raise missing(where.parent, "train")
    examples = read_pictures(where, "imagenet", grey=False, size=size, most=per_class)
    partition = partition or Labels(clients=100, labels=50)
    return pictures(examples, partition, test, valid, seed, mean, std, size=size, per_class=per_class)


def pictures(
    examples: Examples,
    partition: Partition | None,
    test: Test,
    valid: float,
    seed: int,
    mean: float,
    std: float,
    most: int | None = None,
    **settings: Any,
) -> FederatedData:
    """Clients of pictures, whose pixels are shifted and scaled; that is recorded beside their other settings.

    A client trains on `most` at most.
    """
    if most is not None and most < 1:
        raise SettingError(f"most = {most}: it must be a positive number of pictures, or nothing")
    settings |= {"mean": mean, "std": std}
    data = clients_of(examples, partition, test=test, valid=valid, seed=seed, settings=settings, mean=mean, std=std)
    if most is None:
        return data
    return replace(data, train=data.train.at_most(most, seed), settings={**data.settings, "most": most})
