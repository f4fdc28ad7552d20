"""Files that descant writes beside those of others: tables and pictures that may be replaced, and nothing else.

A folder's list of the names that were written there tells which are ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from descant.errors import SettingError
from descant.files import naming, write

_LIST = ".descant-report"  # in a folder: the names of the files that were written there, one a line


def check_names(folder: Path, names: Iterable[str], header: str | None = None) -> None:
    """Refuse names of files in a folder that somebody else wrote. A table that begins with `header` is ours."""
    ours = _listed(folder)
    for name in names:
        path = folder / name
        if path.exists() and name not in ours and not (header and _begins(path, header)):
            remedy = "choose another folder, or remove it first"
            raise SettingError(f"'{path}' is there already, and descant did not write it: {remedy}")


def claim_names(folder: Path, names: Iterable[str]) -> None:
    """List names in a folder as ours, before they are written."""
    listed = "\n".join(sorted(_listed(folder) | set(names)))
    write(folder / _LIST, lambda temporary: temporary.write_text(listed, encoding="utf-8"))


def _listed(folder: Path) -> set[str]:
    path = folder / _LIST
    return set(path.read_text(encoding="utf-8").split("\n")) if path.exists() else set()


def _begins(path: Path, header: str) -> bool:
    if not path.is_file():
        return False
    with naming(path), path.open("rb") as file:
        return file.read(len(header.encode())) == header.encode()
