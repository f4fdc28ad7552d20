"""CIFAR-10, in its binary version and in its python version (a pickle, which is not unpickled)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from descant.data.errors import DataError
from descant.data.examples import Examples, joined
from descant.datasets.readers.contents import contents_of
from descant.datasets.readers.pickled import read_pickled
from descant.datasets.sources import find

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS  # a label, then the red, green and blue planes


def read_cifar10(folder: Path) -> Examples:
    """The 50,000 training and 10,000 test images; of the two versions, the binary one where both are there."""
    files = [
        find(folder, f"{stem}.bin", stem) for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    ]
    *train, test = (read_binary(file) if file.suffix == ".bin" else read_python(file) for file in files)
    whole = Examples(
        "cifar10", torch.cat([part.inputs for part in train]), torch.cat([part.targets for part in train]), 10
    )
    return joined(whole, test)


def read_binary(file: Path) -> Examples:
    """One batch of the binary version."""
    contents = contents_of(file)
    if not contents or len(contents) % _RECORD:
        raise DataError(
            f"it has {len(contents)} bytes, and a record of CIFAR-10 has {_RECORD}: it is damaged", file=file
        )
    records = torch.frombuffer(contents, dtype=torch.uint8).view(-1, _RECORD)
    return _batch(records[:, 1:].reshape(-1, *_SHAPE), records[:, 0].long(), file)


def read_python(file: Path) -> Examples:
    """One batch of the python version."""
    batch = read_pickled(file)
    data, labels = (batch.get("data"), batch.get("labels")) if isinstance(batch, dict) else (None, None)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DataError(f"it has no data of {_PIXELS} bytes an image, as CIFAR-10 does", file=file)
    if not isinstance(labels, list) or len(labels) != len(data) or not all(isinstance(y, int) for y in labels):
        raise DataError(f"it has no list of {len(data)} labels", file=file)
    return _batch(torch.from_numpy(data).view(-1, *_SHAPE), torch.tensor(labels), file)


def _batch(inputs: torch.Tensor, targets: torch.Tensor, file: Path) -> Examples:
    if int(targets.min()) < 0 or int(targets.max()) > 9:
        raise DataError("it has labels outside [0, 10): it is not CIFAR-10", file=file)
    return Examples("cifar10", inputs, targets, 10)
