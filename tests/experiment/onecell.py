"""A comparison of one cell: its settings, and the run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from descant.engine import Record
from descant.experiment import Run
from descant.experiment.grid import comparison

VALUES: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 6, "samples": 30},
    "method": {"name": "ditto", "steps": 2},
    "rounds": 2,
}


def run(values: dict[str, Any], folder: Path) -> tuple[Run, int]:
    """The run of the only cell, and how many records were made anew."""
    made: list[Record] = []
    ((_, found),) = comparison(values, folder).run(lambda _, record: made.append(record))
    return found, len(made)
