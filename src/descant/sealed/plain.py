"""Plain files and their checksums (blake2b): what is wrong with one is an error that names it."""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Any

from descant.errors import DamagedError

REMEDY = "take the folder from a copy, or begin the run anew with overwrite"
DIGEST = 16  # bytes of a checksum
BLOCK = 2**22  # bytes that are read at once
_OTHER = "is damaged, or of another run (its checksum is another)"


def damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(path, what, REMEDY)


def opened(path: Path) -> BufferedReader:
    """A plain file, opened to be read: no link out of the folder, and no pipe that would wait for ever."""
    try:
        kind = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise damaged(path, "is missing") from None
    if not stat.S_ISREG(kind):
        raise damaged(path, "is no plain file")
    return open(path, "rb")


def hash_of(*pieces: bytes | memoryview) -> str:
    digest = blake2b(digest_size=DIGEST)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def entry_of(path: Path) -> dict[str, Any]:
    """Size and checksum of a file, for a list that another file holds."""
    digest, size = blake2b(digest_size=DIGEST), 0
    with opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "blake2b": digest.hexdigest()}


def check_entry(path: Path, entry: Any) -> None:
    """Refuse a file that is not the one in the list; one of another size is not read."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
    if not isinstance(entry, dict) or size != entry.get("bytes") or entry_of(path) != entry:
        raise damaged(path, _OTHER)


def read_entry(path: Path, entry: Any, *, sealed: bool = True) -> bytes:
    """A file that is the one in the list; one of another size is not read. Not `sealed`: there was no list."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        listed = isinstance(entry, dict) and size == entry.get("bytes")
        raw = file.read() if listed or not sealed else b""
    if sealed and not (listed and hash_of(raw) == entry.get("blake2b")):
        raise damaged(path, _OTHER)
    return raw
