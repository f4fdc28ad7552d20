"""Arrays of an .npz file, without pickles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.datasets.sources import find


def read_npz(file: Path, keys: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Some arrays of a file, which must all be there."""
    try:
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {key: archive[key] for key in keys}
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct or numpy, each with its own
        raise DataError(
            f"it is no .npz with {', '.join(keys)} ({type(error).__name__}: {error})", file=file
        ) from error


def read_chars74k(folder: Path) -> Examples:
    """Chars74K's handwriting, rendered to 28 x 28: 62 classes by 55 volunteers, one sample each."""
    file = find(folder, "chars74k_hnd_28x28.npz")
    held = read_npz(file, ("x", "y", "writer", "classes"))
    x, y, writer = held["x"], held["y"].astype(np.int64), held["writer"].astype(np.int64)
    if x.dtype != np.uint8 or x.ndim != 3 or not len(x) == len(y) == len(writer):
        raise DataError("x must be bytes [M, H, W], with a y and a writer each", file=file)
    if len(y) and int(y.max()) >= len(held["classes"]):
        raise DataError(f"label {y.max()} is not in [0, {len(held['classes'])})", file=file)
    people, owners = np.unique(writer, return_inverse=True)
    names = tuple(f"volunteer {person}" for person in people)
    images = torch.from_numpy(x).unsqueeze(1)
    return Examples(
        "chars74k",
        images,
        torch.from_numpy(y),
        len(held["classes"]),
        torch.from_numpy(owners.astype(np.int64)),
        names,
    )
