"""Files from a data set's own address: resumable, verified, unpacked."""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import new
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from descant.data.errors import DataError
from descant.datasets.known import REMEDY, check_known
from descant.datasets.sources import SOURCES, Download, folder_of
from descant.errors import SettingError, unknown
from descant.files import claim_folder, naming, told, write_at

# What is called as bytes arrive: the file, how many there are, and how many there will be (where it is known).
Show = Callable[[str, int, int | None], None]
_BLOCK = 1 << 18
_ALONG = ("digits",)  # they are scikit-learn's
_BY_HAND = "download it elsewhere and put it there under this name"
# Data sets that are made of other sets' files.
NEEDS = {
    "mnist-by-writer": ("mnist", "qmnist-labels"),
    "mnist-robust": ("mnist",),
    "mnist-personal": ("mnist",),
    "fedplus-mnist": ("mnist",),
    "fedplus-emnist": ("emnist",),
    "ditto-fashion": ("fashion-mnist",),
    "hapt": ("har-hapt",),
    "chars74k": ("chars74k-hnd",),
}


def fetch(name: str, root: Path | str | None = None, show: Show | None = None) -> list[Path]:
    """Download what a data set needs, and return the files; those that are there already are only verified.

    An interrupted download is gone on with where it stopped.
    """
    if name in _ALONG:
        raise SettingError(f"{name} come along with descant's own requirements: use them without fetching anything")
    if name not in NEEDS and name not in SOURCES:
        raise unknown("data set to fetch", name, {*NEEDS, *SOURCES})
    files = []
    for source in NEEDS.get(name, (name,)):
        folder = folder_of(source, root)
        if not SOURCES[source].files:
            raise DataError(f"{source} cannot be downloaded by a program: {SOURCES[source].by_hand}", file=folder)
        files += [fetch_file(download, folder, show) for download in SOURCES[source].files]
    return files


def fetch_file(download: Download, folder: Path, show: Show | None = None) -> Path:
    """One file, whole and verified in its place, or an error that says how to go on."""
    file = folder / download.file
    if not file.is_file():
        claim_folder(folder)
        part = file.with_name(file.name + ".part")
        try:
            _download(download.url, part, show or (lambda *_: None))
        except (URLError, HTTPException, OSError) as error:
            done = part.stat().st_size if part.is_file() else 0
            rest = f"; the {done:,} bytes that came are kept, and fetching again goes on from there" if done else ""
            if isinstance(error, OSError) and error.filename == str(part):  # the disk refuses, and not the network
                raise DataError(f"{told(error)}{rest}") from error
            raise DataError(
                f"{download.url} cannot be read ({_reason(error)}){rest}. Without a network, {_BY_HAND}", file=file
            ) from error
        remedy = f"what came from {download.url} was not kept; fetch it again, or {_BY_HAND}"
        try:
            _verify(download, part, file, remedy)
            if download.unpack:
                _unpack(part, file, remedy)
        except DataError:
            part.unlink()  # going on from damaged bytes would never end well
            raise
        os.replace(part, file)  # last, so that an interrupted unpacking is done again
    else:
        _verify(download, file, file, REMEDY)
    return file


def _reason(error: Exception) -> str:
    """What the network, or a server, says: without the number of the system."""
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)


def _download(url: str, part: Path, show: Show) -> None:
    """Fill `part`, from where it ends where the server can do that."""
    have = part.stat().st_size if part.is_file() else 0
    try:
        answer = _open(url, have)
    except HTTPError as error:
        if error.code != 416 or not have:  # 416: there is nothing behind what we have
            raise
        error.close()
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return
        part.unlink()
        have, answer = 0, _open(url, 0)
    with answer as stream:
        if stream.status != 206:
            have = 0  # the server does not resume: from the beginning
        length = stream.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        name = part.name.removesuffix(".part")
        with naming(part):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | (0 if have else os.O_TRUNC), 0o666)
        try:
            show(name, have, total)
            while block := stream.read1(_BLOCK):  # what is there: nothing that came is lost when it breaks off
                write_at(descriptor, have, memoryview(block), part)
                have += len(block)
                show(name, have, total)
        finally:
            os.close(descriptor)
    if total is not None and have < total:
        raise URLError(f"it broke off after {have:,} of {total:,} bytes")


def _open(url: str, have: int) -> AbstractContextManager[Any]:
    headers = {"User-Agent": "descant"} | ({"Range": f"bytes={have}-"} if have else {})
    opened: AbstractContextManager[Any] = urlopen(Request(url, headers=headers), timeout=30)
    return opened


def _verify(download: Download, path: Path, file: Path, remedy: str) -> None:
    if download.checksum is None:
        check_known(file, path.read_bytes(), published=True, remedy=remedy)
        return
    kind, _, expected = download.checksum.partition(":")
    digest = new(kind, usedforsecurity=False)
    with open(path, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DataError(
            f"its {kind} is {digest.hexdigest()}, and that of the published file is {expected}: it is damaged or "
            f"another file; {remedy}",
            file=file,
        )


def _unpack(path: Path, file: Path, remedy: str) -> None:
    try:
        if file.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(file.parent)
        else:
            with tarfile.open(path) as packed:
                packed.extractall(
                    file.parent, filter="data"
                )  # nothing outside the folder, no devices, no links out
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk refuses, and the archive is kept
            raise OSError(error.errno, error.strerror, error.filename or str(file.parent)) from error
        raise DataError(
            f"it cannot be unpacked ({error}): it is damaged, or not what it should be; {remedy}", file=file
        ) from error
