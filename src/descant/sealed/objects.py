"""JSON objects that carry their checksum as their last member."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from descant.files import write_bytes
from descant.sealed.plain import DIGEST, damaged, hash_of, opened

_AT_MOST = 2**28  # bytes
_END = re.compile(rb',\n  "checksum": "([0-9a-f]{32})"\n\}\n')
_END_SIZE = len(b',\n  "checksum": ""\n}\n') + 2 * DIGEST


def write_json(path: Path, value: Mapping[str, Any]) -> str:
    """Write a JSON object with its checksum, which is returned; infinite numbers stay, as Python reads them."""
    text = json.dumps({**value, "checksum": ""}, indent=2).encode()
    body = text[: text.rindex(b',\n  "checksum"')]
    checksum = hash_of(body)
    write_bytes(path, [body, f',\n  "checksum": "{checksum}"\n}}\n'.encode()])
    return checksum


def ends_sealed(path: Path) -> bool:
    """Whether a file ends as a JSON object with its checksum does; whether that is right is not looked at."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_SIZE))
        return _END.fullmatch(file.read()) is not None


def read_json(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object as it was written, and its checksum. One of format 1 has none, and is read as it is."""
    with opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _AT_MOST:
            raise damaged(path, f"has {size} bytes, which no run writes into it")
        text = file.read()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(path, "is damaged (it is no JSON)") from None
    if not isinstance(value, dict):
        raise damaged(path, "is damaged (it holds no object)")
    seal = _END.fullmatch(text[-_END_SIZE:])
    if seal is None and value.get("format") == 1 and "checksum" not in value:
        return value, ""
    if seal is None or seal[1].decode() != hash_of(text[:-_END_SIZE]):
        raise damaged(path, "is damaged, or was changed by hand (its checksum is another)")
    del value["checksum"]
    return value, seal[1].decode()
