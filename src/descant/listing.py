"""What there is of every kind, for people and programs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from descant.catalog import brief, describe
from descant.kinds import CATALOG, NESTED, SETS
from descant.signatures import default_of, parameters_of

_END = re.compile(r"(?<=[.?!])(?<!\beq\.)(?<!\bal\.)\s+")  # of a sentence


def entries(kind: str) -> list[dict[str, Any]]:
    """Everything of a kind: `name`, `summary`, `paper` and `fields`, for people and programs."""
    return [_entry(name, make, skip=1 if kind == "models" else 0) for name, make in CATALOG[kind].items()]


def presets(kind: str) -> list[dict[str, Any]]:
    """The names of a kind that stand for several of its parts: `name`, `summary`, `parts` and `malicious`."""
    return [
        {
            "name": name,
            "summary": preset.summary,
            "parts": [brief(part) for part in preset.attacks],
            "malicious": list(preset.malicious),
        }
        for name, preset in SETS.get(kind, {}).items()
    ]


def _entry(name: str, make: Callable[..., Any], skip: int) -> dict[str, Any]:
    shown = [
        {
            "name": p.name,
            "type": p.annotation
            if isinstance(p.annotation, str)
            else getattr(p.annotation, "__name__", str(p.annotation)),
            "default": None if p.default is p.empty else _shown(default_of(make, p)),
            "required": p.default is p.empty,
            "help": _help(make, p.name),
        }
        for p in parameters_of(make)[skip:]
    ]
    return {
        "name": name,
        "summary": _summary(inspect.getdoc(make) or ""),
        "paper": getattr(make, "paper", None),
        "fields": shown,
    }


def _summary(doc: str) -> str:
    """The first line of a docstring, and what follows up to the end of its sentence."""
    line, text = doc.split("\n")[0], " ".join(doc.split("\n\n")[0].split())
    ends = (end.start() for end in _END.finditer(f"{text} ") if end.start() >= len(line))
    return text[: next(ends, len(text))]


def _help(make: Callable[..., Any], field: str) -> str | None:
    """What a docstring says of a field, or that of the nearest base which does: the sentence that begins with its
    name in `backticks`, or else the first that holds it."""
    named = re.compile(rf"`{re.escape(field)}\b[^`]*`")
    for told in getattr(make, "__mro__", (make,)):
        sentences = [" ".join(s.split()) for s in _END.split(inspect.cleandoc(told.__doc__ or ""))]
        found = [s for s in sentences if named.match(s)] + [s for s in sentences if named.search(s)]
        if found:
            return found[0]
    return None


def _shown(default: Any) -> Any:
    if isinstance(default, tuple(NESTED)):  # its name alone, where all its fields have their defaults
        plain = all(getattr(default, p.name) == default_of(type(default), p) for p in parameters_of(type(default)))
        return describe(default)["name"] if plain else describe(default)
    if isinstance(default, bool | int | float | str | list | type(None)):
        return default
    if isinstance(default, tuple):
        return list(default)
    return str(default)
