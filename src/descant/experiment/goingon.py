"""How to go on with an unfinished run, as one says it to the command line or in Python."""

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
    """The command that goes on with the run in a folder: with import paths it must be allowed to follow them.

    A run that was begun in Python goes on there, where its task and its data are.
    """
    config = _config(folder)
    if config is not None and config.get("settings") is None:
        return f"in Python: {resume_call(folder)}"
    allowed = "--allow-imports " if _imports(config) else ""
    return f"descant resume {allowed}{folder}"


def resume_call(folder: Path) -> str:
    """The same as one says it in Python."""
    config = _config(folder)
    told = ", task, data" if config is not None and config.get("settings") is None else ""
    allowed = ", allow_imports=True" if _imports(config) else ""
    return f"descant.resume({str(folder)!r}{told}{allowed})"


def _config(folder: Path) -> dict[str, Any] | None:
    try:
        found = read_json(folder / START)[0].get("config")
    except (DamagedError, OSError):  # that it is damaged, `resume` will say
        return None
    return found if isinstance(found, dict) else None


def _imports(value: Any) -> bool:
    """Whether a part is named by an import path: alone, or under `name` beside its fields."""
    if isinstance(value, dict):
        return any(_imports(inner) for field, inner in value.items() if field not in _FREE)
    if isinstance(value, list):
        return any(map(_imports, value))
    return isinstance(value, str) and _PATH.fullmatch(value) is not None
