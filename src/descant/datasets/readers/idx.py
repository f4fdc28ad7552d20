"""The idx format of MNIST and its relatives: a magic number, the sizes of the axes, then the numbers."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.examples import Examples, joined
from descant.datasets.readers.contents import contents_of
from descant.datasets.sources import find

# The third byte of the magic number names the type; numbers are big-endian.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
EMNIST = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


def read_idx(file: Path, axes: int | None = None) -> Tensor:
    """The numbers of an idx file, gzipped or not; `axes` says how many axes it must have."""
    contents = contents_of(file)
    magic = bytes(contents[:4])
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] not in (axes or magic[3],):
        wanted = "" if axes is None else f" with {axes} axes"
        raise DataError(
            f"it begins with {magic.hex() or 'nothing'}, and not as an idx file{wanted} does", file=file
        )
    dtype, start = np.dtype(_TYPES[magic[2]]), 4 + 4 * magic[3]
    shape = [int.from_bytes(contents[at : at + 4], "big") for at in range(4, start, 4)]
    expected = start + prod(shape) * dtype.itemsize
    if len(contents) != expected:
        how = "cut short" if len(contents) < expected else "too long"
        raise DataError(
            f"it has {len(contents)} bytes, and {shape} numbers make {expected}: it is {how}", file=file
        )
    numbers = np.frombuffer(contents, dtype, offset=start).reshape(shape)
    return torch.from_numpy(numbers.astype(dtype.newbyteorder("="), copy=False))


def read_pair(name: str, images: Path, labels: Path, classes: int) -> Examples:
    """The images [M, 1, H, W] and labels of one part."""
    inputs, targets = read_idx(images, 3), read_idx(labels, 1)
    if len(inputs) != len(targets):
        raise DataError(f"it has {len(targets)} labels for the {len(inputs)} images of {images.name}", file=labels)
    if len(targets) and int(targets.max()) >= classes:
        raise DataError(f"label {int(targets.max())} is not in [0, {classes})", file=labels)
    return Examples(name, inputs.unsqueeze(1), targets.long(), classes)


def read_mnist(folder: Path, name: str = "mnist") -> Examples:
    """The four files of MNIST or Fashion-MNIST: 60,000 and 10,000 images of ten classes."""
    train, test = (
        read_pair(
            name, _idx_file(folder, f"{part}-images", "idx3"), _idx_file(folder, f"{part}-labels", "idx1"), 10
        )
        for part in ("train", "t10k")
    )
    return joined(train, test)


def read_emnist(folder: Path, split: str) -> Examples:
    """A split of EMNIST. Its files hold the images transposed, and count letters from 1: both are mended."""
    first = 1 if split == "letters" else 0
    parts = []
    for part in ("train", "test"):
        images = _idx_file(folder, f"emnist-{split}-{part}-images", "idx3")
        labels = _idx_file(folder, f"emnist-{split}-{part}-labels", "idx1")
        read = read_pair("emnist", images, labels, EMNIST[split] + first)
        if first and len(read) and int(read.targets.min()) < first:
            raise DataError(f"label {int(read.targets.min())} is not in [{first}, {EMNIST[split]}]", file=labels)
        upright = read.inputs.transpose(2, 3).contiguous()
        parts.append(Examples("emnist", upright, read.targets - first, EMNIST[split]))
    return joined(*parts)


def read_writers(folder: Path) -> Tensor:
    """QMNIST's writer ids of MNIST's 60,000 training images, in MNIST's order."""
    file = find(folder, "qmnist-train-labels-idx2-int.gz", "qmnist-train-labels-idx2-int")
    table = read_idx(file, 2)
    if table.shape[1] != 8:
        raise DataError(f"it has {table.shape[1]} columns, and QMNIST's labels have 8", file=file)
    return table[:, 2].long()


def _idx_file(folder: Path, stem: str, kind: str) -> Path:
    # torchvision and some packages write a dot where the original has a dash
    names = [f"{stem}{dash}{kind}-ubyte{suffix}" for dash in "-." for suffix in ("", ".gz")]
    return find(folder, *names)
