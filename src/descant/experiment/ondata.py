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
    """The data of some runs, each with a name: its own and, where several have that, what differs."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(data_of(run), run)
    return {data: _name(run, list(first.values())) for data, run in first.items()}


def _told(run: Run) -> dict[str, Any]:
    """What may tell data of the same name apart."""
    data = _data(run)
    settings = {name: value for name, value in data.get("settings", {}).items() if name != "seed"}
    return {"clients": data.get("clients")} | settings | {"metric": run.history.metric}


def _name(run: Run, every: list[Run]) -> str:
    name, told = str(_data(run).get("name")), _told(run)
    namesakes = [_told(other) for other in every if str(_data(other).get("name")) == name]
    differ = [field for field in told if any(other.get(field) != told[field] for other in namesakes)]
    parts = [f"{field} {told[field] if isinstance(told[field], str) else shown(told[field])}" for field in differ]
    return f"{name} ({', '.join(parts[:_MOST])})" if parts else name


def _data(run: Run) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run.config.get("data", {})
    return found
