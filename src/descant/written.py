"""Files that descant writes beside those of others: tables and pictures that may be replaced, and nothing else.

A folder's list of what was written there tells which files are ours: by their contents, as a name tells nothing of
who wrote a file, or changed it since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from descant.errors import SettingError
from descant.files import naming, write, write_bytes

_LIST = ".descant-report"  # in a folder: the files that were written there, as lines of `sha256sum`
_BETWEEN = "  "  # a checksum and the name
_LINE = re.compile(rb"[0-9a-f]{64}  .+")


def check_names(folder: Path, names: Iterable[str]) -> None:
    """Refuse names of files in a folder that somebody else wrote, or changed since descant did."""
    ours = _listed(folder)
    listed = {line.partition(_BETWEEN)[2] for line in ours}
    for name in names:
        path = folder / name
        if not path.exists() or (path.is_file() and _line(name, _read(path)) in ours):
            continue
        if name in listed:
            remedy = "rename it if you want to keep it, or remove it first"
            raise SettingError(f"'{path}' was changed since descant wrote it: {remedy}")
        remedy = "choose another folder, or remove it first"
        raise SettingError(f"'{path}' is there already, and descant did not write it: {remedy}")


def write_ours(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, by their names, and list them there as ours.

    The list comes first, and keeps what it had: a file is known whenever the program is stopped.
    """
    lines = _listed(folder) | {_line(name, content) for name, content in contents.items()}
    text = "\n".join(sorted(lines, key=lambda line: line.partition(_BETWEEN)[::-1]))
    write(folder / _LIST, lambda temporary: temporary.write_text(f"{text}\n", encoding="utf-8"))
    for name, content in contents.items():
        write_bytes(folder / name, [content])


def _listed(folder: Path) -> set[str]:
    path = folder / _LIST
    lines = set(_read(path).split(b"\n")) - {b""} if path.exists() else set()
    if not all(map(_LINE.fullmatch, lines)):  # somebody else's, or somebody wrote in it
        what = "is to list the files that descant writes here, and holds something else"
        raise SettingError(f"'{path}' {what}: choose another folder, or move it away")
    return {line.decode(errors="replace") for line in lines}


def _line(name: str, content: bytes) -> str:
    return f"{sha256(content).hexdigest()}{_BETWEEN}{name}"


def _read(path: Path) -> bytes:
    with naming(path):
        return path.read_bytes()
