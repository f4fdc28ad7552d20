"""Where data sets come from, where their files lie, and how to know them.

A set's files lie in ROOT/NAME. ROOT is the `root` of a data set's settings, else the environment variable
DESCANT_DATA, else ~/.cache/descant/data. `descant data fetch NAME` fills it from the addresses below.

The checksums here are of the downloads, as their publishers or well-known libraries print them: torchvision for
MNIST, Fashion-MNIST, EMNIST and QMNIST, the authors for CIFAR-10, MONAI for MedNIST, TensorFlow Federated for
Shakespeare. UCI prints none. `known.py` has those of the contents, whatever compressed them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from descant.data.errors import DataError


@dataclass(frozen=True)
class Download:
    """One file to fetch. `checksum` is 'md5:...' or 'sha256:...'; an archive is unpacked into the folder."""

    file: str
    url: str
    checksum: str | None = None
    unpack: bool = False


@dataclass(frozen=True)
class Source:
    """A data set's own address: what to download, or, where that cannot be automatic, what to do by hand."""

    files: tuple[Download, ...] = ()
    by_hand: str = ""
    licence: str = ""


def _idx(base: str, checksums: tuple[str, str, str, str]) -> tuple[Download, ...]:
    names = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return tuple(Download(name, base + name, f"md5:{md5}") for name, md5 in zip(names, checksums, strict=True))


_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_HEART = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
_LEAF = (
    "build it with LEAF (github.com/TalwalkarLab/leaf, data/{0}/preprocess.sh), and put the .json files of its "
    "data/train and data/test into the folders train and test here{1}"
)
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

SOURCES: dict[str, Source] = {
    "mnist": Source(
        _idx(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        licence="CC BY-SA 3.0",
    ),
    "fashion-mnist": Source(
        _idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
        licence="MIT",
    ),
    "emnist": Source(
        (
            Download(
                "gzip.zip",
                "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                "md5:58c8d27c78d21e728a6bc7b3cc06412e",
                unpack=True,
            ),
        ),
        licence="public domain (NIST)",
    ),
    "qmnist-labels": Source(
        (
            Download(
                "qmnist-train-labels-idx2-int.gz",
                _QMNIST + "qmnist-train-labels-idx2-int.gz",
                "md5:0058f8dd561b90ffdd0f734c6a30e5e4",
            ),
            Download(
                "qmnist-test-labels-idx2-int.gz",
                _QMNIST + "qmnist-test-labels-idx2-int.gz",
                "md5:5b5b05890a5e13444e108efe57b788aa",
            ),
        ),
        licence="BSD",
    ),
    "cifar10": Source(
        (
            Download(
                "cifar-10-binary.tar.gz",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
                unpack=True,
            ),
        ),
    ),
    "medical-mnist": Source(
        (
            Download(
                "MedNIST.tar.gz",
                "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/MedNIST.tar.gz",
                "md5:0bc7306e7427e00ad1c5526a6677552d",
            ),
        ),
        licence="CC BY-SA 4.0",
    ),
    "shakespeare-tff": Source(
        (
            Download(
                "shakespeare.tar.bz2",
                "https://storage.googleapis.com/tff-datasets-public/shakespeare.tar.bz2",
                "sha256:0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707",
                unpack=True,
            ),
        ),
        licence="Apache-2.0; public domain text",
    ),
    "har-hapt": Source(
        (
            Download(
                "hapt.zip",
                "https://archive.ics.uci.edu/static/public/341/smartphone+based+recognition+of+human+activities+"
                "and+postural+transitions.zip",
                unpack=True,
            ),
        ),
        licence="CC BY 4.0",
    ),
    "heart-disease": Source(
        tuple(Download(f"processed.{h}.data", f"{_HEART}processed.{h}.data") for h in HOSPITALS),
        licence="CC BY 4.0",
    ),
    "vehicle": Source(
        by_hand="put Ditto's mytrain.json (and mytest.json where you have it; .json.gz too) here: "
        "github.com/litian96/ditto, data/vehicle",
        licence="MIT",
    ),
    "chars74k-hnd": Source(by_hand="put chars74k_hnd_28x28.npz here (arrays x, y, writer and classes)"),
    "femnist": Source(by_hand=_LEAF.format("femnist", "")),
    "sent140": Source(by_hand=_LEAF.format("sent140", "")),
    "shakespeare": Source(by_hand=_LEAF.format("shakespeare", "")),
    "celeba": Source(by_hand=_LEAF.format("celeba", ", and CelebA's pictures into the folder img_align_celeba")),
    "imagenet": Source(
        by_hand="put the folders of ILSVRC2012's training pictures (n01440764, ...) into the folder train here: "
        "image-net.org"
    ),
}


def folder_of(name: str, root: Path | str | None = None) -> Path:
    """The folder of a data set's files."""
    base = root or os.environ.get("DESCANT_DATA") or "~/.cache/descant/data"
    return Path(base).expanduser() / name


def find(folder: Path, *names: str) -> Path:
    """The first of these files that is there (a name may have * in it), in the folder or one folder below."""
    for name in names:
        for pattern in (name, f"*/{name}"):
            found = sorted(folder.glob(pattern))
            if found:
                return found[0]
    raise missing(folder, names[0])


def missing(folder: Path, file: str) -> DataError:
    """The error for a file that is not there, with the way to get it."""
    source = SOURCES.get(folder.name)
    if source is None:
        how = "put it there"
    elif source.files:
        how = f"get it with `descant data fetch {folder.name}`, or put it there"
    else:
        how = source.by_hand
    return DataError(f"the file is missing: {how}", file=folder / file)
