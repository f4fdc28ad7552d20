"""What a file holds, decompressed and checked, or an error that names it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from descant.data.errors import DataError
from descant.datasets.known import check_known
from descant.datasets.sources import missing


def contents_of(file: Path) -> bytearray:
    """The bytes of a file, gunzipped where its name ends with .gz."""
    if not file.is_file():
        raise missing(file.parent, file.name)
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                contents = bytearray(stream.read())
        else:
            contents = bytearray(file.stat().st_size)
            with open(file, "rb") as plain:
                del contents[plain.readinto(contents) :]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"it cannot be decompressed ({error}): it is damaged or cut short", file=file) from error
    check_known(file, memoryview(contents))
    return contents


def json_of(file: Path) -> Any:
    """The value that a JSON file holds, gzipped or not."""
    try:
        return json.loads(contents_of(file))
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"it is not JSON ({error}): it is damaged or cut short", file=file) from error
