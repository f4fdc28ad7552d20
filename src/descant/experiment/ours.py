"""Whether a file by one of our names is one that a run wrote: its contents tell, and not its name.

A look is enough: at the first or the last bytes, or at the names in a small JSON. It tells a run's files from those
of a user, who may have a `summary.json` of their own; whether a file is undamaged is another question (`verify`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from descant.sealed import begins_sealed, ends_sealed

_LARGEST = 2**24  # bytes of a JSON file that is worth a look
_PARQUET = b"PAR1"  # what a file of Parquet begins and ends with
# Columns that a table of ours has in every run: a file of Parquet names its columns at its end.
_COLUMNS = {
    "rounds.parquet": ("round", "cohort", "received", "refused"),
    "clients.parquet": ("round", "client", "model", "gradients", "bytes_up", "bytes_down"),
    "federation.parquet": ("client", "name", "train", "valid", "test"),
    "health.parquet": ("round", "client", "jump", "distance"),
}
_FIGURES = {"collapsed", "rounds", "clients", "bytes_up", "bytes_down"}  # that a summary has in every run


def of_a_run(path: Path) -> bool:
    """Whether a run.json or a start.json is a run's."""
    return _config(path) is not None


def begins_a_run(path: Path) -> bool:
    """The same of one that may be damaged: it is not plainly something else, whole and without a checksum."""
    try:
        if ends_sealed(path) or of_a_run(path):
            return True
        json.loads(path.read_bytes() if path.stat().st_size <= _LARGEST else b"")
    except FileNotFoundError:  # another process has just removed it
        return False
    except (ValueError, RecursionError, PermissionError):  # who reads it says what is wrong with it
        return True
    return False


def listed(path: Path) -> tuple[str, ...] | None:
    """The files that a run.json says its run consists of; None where there is none, or it does not say."""
    files = (_config(path) or {}).get("files")
    return tuple(files) if isinstance(files, dict) else None


def written_by_us(path: Path) -> bool:
    """Whether a file has the form in which runs write the one of its name."""
    if path.name in _COLUMNS:
        return _names(path, _COLUMNS[path.name])
    if path.name == "summary.json":
        return set(_object(path)) >= _FIGURES
    return begins_sealed(path) if path.suffix == ".safetensors" else ends_sealed(path)


def begins_as_ours(path: Path) -> bool:
    """The same of one that may be damaged: it begins as ours does, and is no whole JSON of somebody else's."""
    with path.open("rb") as file:
        head = file.read(len(_PARQUET))
    if not head.strip(b"\0"):  # as a power cut may leave it
        return True
    if path.suffix == ".parquet":
        return head == _PARQUET
    if path.suffix == ".safetensors":
        return begins_sealed(path)
    return head.startswith(b"{") and (not _object(path) or written_by_us(path))


def _config(path: Path) -> dict[str, Any] | None:
    about = _object(path)
    try:
        return about if "descant" in about["config"]["versions"] else None
    except (LookupError, TypeError):
        return None


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a plain file; an empty one where there is none."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(path: Path, columns: tuple[str, ...]) -> bool:
    """Whether a file of Parquet names these columns."""
    with path.open("rb") as file:
        head = file.read(len(_PARQUET))
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        length, tail = int.from_bytes(file.read(4), "little"), file.read()
        if head != _PARQUET or tail != _PARQUET or length > size - 12:
            return False
        file.seek(size - 8 - length)
        footer = file.read(length)
    # A name stands behind its length: "client" is not a part of "client_id".
    return all(bytes([len(column)]) + column.encode() in footer for column in columns)
