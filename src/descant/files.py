"""Files that are whole or absent, and tensors that lie in files."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary file beside `path`, make it durable, and put it in the place of `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fill(temporary)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)  # the rename itself must survive a power cut


def write_at(descriptor: int, offset: int, raw: memoryview, path: Path) -> None:
    """Write all of `raw` at a place in a file, or raise an error that names it.

    A call of the system may write a part only: on a full disk, and never more than 2 GiB.
    """
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        while len(raw):
            if (written := os.write(descriptor, raw)) <= 0:
                raise OSError(errno.EIO, "the system writes no more of it")
            raw = raw[written:]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Wait until a file (what was written through a mapping too), or a folder's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(plain(value), indent=2, allow_nan=False)
    write(path, lambda temporary: temporary.write_text(text + "\n"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def map_tensor(path: Path, shape: Sequence[int], dtype: torch.dtype, *, writable: bool = False) -> Tensor:
    """The tensor of a raw file. Its pages are read when they are touched and can be given back at any time.

    What is written to a `writable` one goes to the file; otherwise the file stays as it is.
    """
    numbers = prod(shape)
    if path.stat().st_size != numbers * dtype.itemsize:
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes, and {numbers} numbers of {name_of(dtype)} have "
            f"{numbers * dtype.itemsize}: the file is not the one that was written"
        )
    if numbers == 0:  # there is no mapping of nothing
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.from_file(str(path), shared=writable, size=numbers, dtype=dtype).view(tuple(shape))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"'{name}' is not a type of numbers that torch knows")
    return found
