"""How to go on with an unfinished run, as one says it to the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from descant.errors import DamagedError
from descant.experiment.folder import START
from descant.sealed import read_json

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # `some.module:Name`
_FREE = ("label",)  # fields whose words are the user's own


def resume_command(folder: Path) -> str:
    """The command that goes on with the run in a folder: with import paths it must be allowed to follow them."""
    try:
        config = read_json(folder / START)[0].get("config")
    except (DamagedError, OSError):  # that it is damaged, `resume` will say
        config = None
    allowed = "--allow-imports " if _imports(config) else ""
    return f"descant resume {allowed}{folder}"


def _imports(value: Any) -> bool:
    """Whether a part is named by an import path: alone, or under `name` beside its fields."""
    if isinstance(value, dict):
        return any(_imports(inner) for field, inner in value.items() if field not in _FREE)
    if isinstance(value, list):
        return any(map(_imports, value))
    return isinstance(value, str) and _PATH.fullmatch(value) is not None
