"""Runs side by side: one row a label, with the mean and the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from descant.experiment.run import Run


@dataclass(frozen=True)
class Row:
    """A label's figures: mean and standard deviation over its seeds, and how many of its runs collapsed."""

    label: str
    seeds: int
    collapsed: int
    mean: dict[str, float]
    spread: dict[str, float]


def rows(labelled: Iterable[tuple[str, Run]], first: int = 0) -> list[Row]:
    """One row a label, over all its seeds. The spread is the standard deviation of the sample (0 for one seed)."""
    by_label: dict[str, list[dict[str, Any]]] = {}
    for label, run in labelled:
        by_label.setdefault(label, []).append(run.summary(first))
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


def unequal(table: Sequence[Row], figure: str = "examples_per_client", tolerance: float = 0.01) -> dict[str, float]:
    """A figure of each row, where it differs by more than `tolerance`; empty where the rows agree."""
    spent = {row.label: row.mean[figure] for row in table}
    low, high = min(spent.values()), max(spent.values())
    return spent if high - low > tolerance * high else {}


def human_bytes(count: float) -> str:
    """Bytes as people write them, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
