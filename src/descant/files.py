"""Files that are whole or absent, and tensors that lie in files."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.errors import SettingError

_ELSEWHERE = "choose another place"
_SAID = {  # what the system says by number -> what it means, and what to do
    errno.ENOENT: ("there is no such file or folder", f"check the path, or {_ELSEWHERE}"),
    errno.EACCES: ("permission is denied", f"{_ELSEWHERE}, or change the permissions"),
    errno.EPERM: ("permission is denied", f"{_ELSEWHERE}, or change the permissions"),
    errno.EROFS: ("what lies there can only be read", _ELSEWHERE),
    errno.ENOSPC: ("the disk is full", f"make room, or {_ELSEWHERE}"),
    errno.EDQUOT: ("your share of the disk is full", f"make room, or {_ELSEWHERE}"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.EISDIR: ("it is a folder", "name a file in it"),
}
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # what a link of the same name points to is never written


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary file beside `path`, make it durable, and put it in the place of `path`."""
    temporary = temporary_of(path)
    with naming(path):
        temporary.unlink(missing_ok=True)  # of a process that was killed, and had our number
        try:
            fill(temporary)
            sync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)  # the rename itself must survive a power cut


def write_bytes(
    path: Path, pieces: Iterable[memoryview | bytes], *, head: Callable[[], bytes] = bytes, head_size: int = 0
) -> None:
    """Write a whole file, piece after piece, under a temporary name until it is durable.

    The first `head_size` bytes are those of `head`, which is asked for them last.
    """

    def fill(temporary: Path) -> None:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            at = head_size
            for piece in pieces:
                write_at(descriptor, at, memoryview(piece), path)
                at += len(piece)
            write_at(descriptor, 0, memoryview(head()), path)
        finally:
            os.close(descriptor)

    write(path, fill)


def copy_file(source: Path, path: Path) -> None:
    """Copy a file, whole or not at all."""
    write(path, lambda temporary: shutil.copyfile(source, temporary))


def temporary_of(path: Path) -> Path:
    """The name under which a file is written until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def write_at(descriptor: int, offset: int, raw: memoryview, path: Path) -> None:
    """Write all of `raw` at a place in a file, or raise an error that names it.

    A call of the system may write a part only: on a full disk, and never more than 2 GiB.
    """
    with naming(path):
        while len(raw):
            if (written := _put(descriptor, raw, offset)) <= 0:
                raise OSError(errno.EIO, "the system writes no more of it")
            raw, offset = raw[written:], offset + written


def read_at(descriptor: int, offset: int, into: memoryview, path: Path) -> None:
    """Fill `into` from a place in a file, or raise an error that names it."""
    with naming(path):
        while len(into):
            if (got := _get(descriptor, into, offset)) <= 0:
                raise OSError(errno.EIO, "it is shorter than what was written to it")
            into, offset = into[got:], offset + got


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system name the file that it is about."""
    try:
        yield
    except OSError as error:
        if error.filename == str(path) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Wait until a file (what was written through a mapping too), or a folder's list of files, is on the disk."""
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, so that they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def claim_folder(path: Path, setting: str | None = None) -> None:
    """Make a folder that a user has named (by a `setting`, say), or say why there can be none, and what to do."""
    named = f"the folder '{path}'" if setting is None else f"{setting} = '{path}'"
    try:
        make_folder(path)
    except OSError as error:
        said, remedy = _meaning(error, path)
        if error.errno == errno.ENOENT:  # in a file system that is not for files, such as /proc
            said, remedy = "the system allows none there", _ELSEWHERE
        raise SettingError(f"{named} cannot be made: {said}; {remedy}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        said, remedy = _SAID[errno.EACCES]
        raise SettingError(f"{named} cannot be written to: {said}; {remedy}")


def told(error: OSError) -> str:
    """What the system refused to do with a file: in words, with its path and a remedy."""
    said, remedy = _meaning(error, Path(error.filename))
    return f"'{error.filename}' cannot be read or written: {said}; {remedy}"


def _meaning(error: OSError, path: Path) -> tuple[str, str]:
    """What an error of the system means, and what to do about it."""
    # `os.path` says that there is no such file where a name is one that no file can have; `Path.exists` raises.
    there = (each for each in (path, *path.parents) if os.path.exists(each) and not os.path.isdir(each))
    in_the_way = next(there, None)
    link = next((each for each in (path, *path.parents) if _leads_nowhere(each)), None)
    if error.errno in (errno.EEXIST, errno.ENOENT) and link is not None:
        which = "it is" if link == path else f"'{link}' is"
        return (
            f"{which} a link to '{os.readlink(link)}', which does not exist",
            f"make that folder, or {_ELSEWHERE}",
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST) and in_the_way is not None:
        return f"'{in_the_way}' is a file" if in_the_way != path else "it is a file", _ELSEWHERE
    return _SAID.get(error.errno or 0, (str(error.strerror or error), _ELSEWHERE))


def _leads_nowhere(path: Path) -> bool:
    return os.path.islink(path) and not os.path.exists(path)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(plain(value), indent=2, allow_nan=False)
    write_bytes(path, [f"{text}\n".encode()])


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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


def _put(descriptor: int, raw: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, raw, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, raw)


def _get(descriptor: int, into: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [into], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    part = os.read(descriptor, len(into))
    into[: len(part)] = part
    return len(part)
