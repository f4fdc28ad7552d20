"""Runs side by side: one row a label, with the mean and the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from descant.runs.grid import Cell
from descant.runs.run import Run


@dataclass(frozen=True)
class Row:
    """A label's figures: mean and standard deviation over its seeds, and how many of its runs collapsed."""

    label: str
    seeds: int
    collapsed: int
    mean: dict[str, float]
    spread: dict[str, float]


def rows(results: Iterable[tuple[Cell, Run]], first: int = 0) -> list[Row]:
    """One row a label, over all its seeds. The spread is the standard deviation of the sample (0 for one seed)."""
    by_label: dict[str, list[dict[str, Any]]] = {}
    for cell, run in results:
        by_label.setdefault(cell.label, []).append(run.summary(first))
    return [_row(label, summaries) for label, summaries in by_label.items()]


def _row(label: str, summaries: Sequence[dict[str, Any]]) -> Row:
    names = [n for n, v in summaries[0].items() if isinstance(v, int | float) and not isinstance(v, bool)]
    values = {n: np.array([s.get(n, np.nan) for s in summaries], dtype=float) for n in names}
    return Row(
        label=label,
        seeds=len(summaries),
        collapsed=sum(s["collapsed"] for s in summaries),
        mean={n: float(v.mean()) for n, v in values.items()},
        spread={n: float(v.std(ddof=1)) if len(v) > 1 else 0.0 for n, v in values.items()},
    )


def unequal_budgets(table: Sequence[Row], tolerance: float = 0.01) -> dict[str, float]:
    """The gradients a client of each row, where they differ by more than `tolerance`; empty where they agree."""
    spent = {row.label: row.mean["examples_per_client"] for row in table}
    low, high = min(spent.values()), max(spent.values())
    return spent if high - low > tolerance * high else {}
