"""Which data runs are on, whatever the draw: figures on other data, or by another metric, do not compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from descant.errors import shown
from descant.experiment.run import Run

_MOST = 3  # settings that a name tells


def data_of(run: Run) -> str:
    """What runs must have in common to stand in one table, as text. The seed of the data is left out."""
    return json.dumps([_data(run).get("name"), _told(run)], sort_keys=True, default=str)


def data_names(runs: Iterable[Run]) -> dict[str, str]:
    """The data of some runs, each with a name of its own: that of the data and, where several have it, what
    differs."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(data_of(run), run)
    names: dict[str, str] = {}
    for data, run in first.items():
        name = _name(run, list(first.values()))
        while name in names.values():  # where what differs is too long to tell, or is not there
            name += " #2"
        names[data] = name
    return names


def _told(run: Run) -> dict[str, Any]:
    """What may tell data of the same name apart."""
    data = _data(run)
    settings = {name: value for name, value in data.get("settings", {}).items() if name != "seed"}
    return {"clients": data.get("clients")} | settings | {"metric": run.history.metric}


def _name(run: Run, every: list[Run]) -> str:
    name, told = str(_data(run).get("name")), _told(run)
    namesakes = [_told(other) for other in every if str(_data(other).get("name")) == name]
    differ = [field for field in told if any(_text(other, field) != _text(told, field) for other in namesakes)]
    parts = [f"{field} {told[field] if isinstance(told[field], str) else shown(told[field])}" for field in differ]
    texts = [[_text(other, field) for field in differ] for other in namesakes]
    own = [_text(told, field) for field in differ]
    enough = (n for n in range(len(differ)) if sum(other[:n] == own[:n] for other in texts) == 1)
    return f"{name} ({', '.join(parts[: max(_MOST, next(enough, len(differ)))])})" if parts else name


def _text(told: Mapping[str, Any], field: str) -> str:
    """A setting as `data_of` compares it; one that is not there is none."""
    return json.dumps(told[field], sort_keys=True, default=str) if field in told else ""


def _data(run: Run) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.config.get("data", {})
    return found
