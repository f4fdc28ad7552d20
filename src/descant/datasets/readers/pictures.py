"""Folders of JPEG or PNG files, one folder a class, as they lie or in a tar archive."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.data.pictures import ENDINGS, decode, stacked


def read_pictures(
    where: Path, name: str, *, grey: bool, size: int | None = None, most: int | None = None
) -> Examples:
    """All pictures of a folder or archive; classes are numbered by the name of the folder that they lie in.

    Without a `size` all pictures must have the same one; with it each is cropped to its middle square and scaled to
    `size` x `size`. `most` keeps only the first so many of every class.
    """
    found: dict[str, list[tuple[str, npt.NDArray[np.uint8]]]] = {}
    for path, stream in _archived(where) if where.is_file() else _lying(where, most):
        pictures = found.setdefault(path.parent.name, [])
        if most is None or len(pictures) < most:
            pictures.append((path.name, decode(stream, where / path, grey=grey, size=size)))
    if not found:
        raise DataError(f"it has no picture ({', '.join(ENDINGS)}) in a folder of its class", file=where)
    named = [picture for label in sorted(found) for picture in sorted(found[label], key=lambda one: one[0])]
    shape = named[0][1].shape
    for picture, pixels in named:
        if pixels.shape != shape:
            raise DataError(f"{picture} is {pixels.shape}, and others are {shape}: give a size", file=where)
    counts = torch.tensor([len(found[label]) for label in sorted(found)])
    targets = torch.arange(len(found)).repeat_interleave(counts)
    return Examples(name, stacked([pixels for _, pixels in named]), targets, len(found))


def _lying(folder: Path, most: int | None) -> Iterator[tuple[PurePosixPath, Path]]:
    for label in sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ():
        files = sorted(file for file in label.iterdir() if file.suffix.lower() in ENDINGS)
        for file in files[:most]:
            yield PurePosixPath(label.name, file.name), file


def _archived(file: Path) -> Iterator[tuple[PurePosixPath, BinaryIO]]:
    """The pictures in an archive, of which nothing is unpacked to disk."""
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if member.isfile() and path.suffix.lower() in ENDINGS and not path.name.startswith("."):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield path, BytesIO(stream.read())
    except (tarfile.TarError, lzma.LZMAError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"it cannot be unpacked ({error}): it is damaged or cut short", file=file) from error
