"""Who wins, by how much, and whether the seeds support it: differences paired over seeds, with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from descant.experiment.table import short
from descant.report.gather import Entry, Experiment

# The 97.5 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom; from the last on 1.96 is near.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Paired:
    """How much better one is than another, over the seeds that both have: positive is better."""

    mean: float
    low: float  # of the 95 % interval of the mean, by Student's t
    high: float
    wins: int
    seeds: int

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0; one seed says nothing."""
        return self.seeds > 1 and (self.low > 0 or self.high < 0)

    @property
    def support(self) -> str:
        """The interval and the wins in words."""
        if self.seeds < 2:
            return "with one seed, which cannot say whether this is chance"
        return (
            f"95 % interval {gap_text(self.low)} to {gap_text(self.high)}, paired over {self.seeds} seeds, "
            f"ahead in {self.wins} of {self.seeds}"
        )


def paired(a: Mapping[str, float], b: Mapping[str, float], higher_is_better: bool = True) -> Paired | None:
    """Compare figures by seed; None where no seed has both."""
    sign = 1.0 if higher_is_better else -1.0
    gaps = [sign * (a[seed] - b[seed]) for seed in a if seed in b and isfinite(a[seed]) and isfinite(b[seed])]
    if not gaps:
        return None
    n, mean = len(gaps), sum(gaps) / len(gaps)
    wins = sum(gap > 0 for gap in gaps)
    if n == 1:
        return Paired(mean, float("-inf"), float("inf"), wins, n)
    error = sqrt(sum((gap - mean) ** 2 for gap in gaps) / (n - 1) / n)
    reach = (_T[n - 2] if n - 2 < len(_T) else 1.96) * error
    return Paired(mean, mean - reach, mean + reach, wins, n)


def by_seed(entry: Entry, experiment: Experiment) -> dict[str, float]:
    """The mean test metric over clients of every run, at the round that is reported."""
    figure = f"{experiment.model}.test_{experiment.history.metric}.mean@{experiment.rule}"
    runs = zip(entry.keys, entry.runs, strict=True)
    return {key: float(run.summary(experiment.first).get(figure, float("nan"))) for key, run in runs}


def ranked(experiment: Experiment) -> list[tuple[Entry, dict[str, float], float]]:
    """The entries from best to worst by the mean over seeds; one that lacks the figure in any seed is left out."""
    found = [(entry, by_seed(entry, experiment)) for entry in experiment.entries]
    whole = [
        (entry, values, sum(values.values()) / len(values))
        for entry, values in found
        if all(map(isfinite, values.values()))
    ]
    return sorted(whole, key=lambda row: row[2], reverse=experiment.history.higher_is_better)


def against_one(experiment: Experiment, against: str | None = None) -> Iterator[dict[str, Any]]:
    """How much better every entry is than one of them, by default the best, as lines of a table."""
    entries = {entry.label: entry for entry in experiment.entries}
    if against is None:
        against = order[0][0].label if (order := ranked(experiment)) else next(iter(entries))
    figures = {label: by_seed(entry, experiment) for label, entry in entries.items()}
    for label in entries if against in entries else ():
        found = paired(figures[label], figures[against], experiment.history.higher_is_better)
        if label == against or found is None:
            continue
        several = found.seeds > 1 and not (entries[label].alike and entries[against].alike)
        yield {
            "method": label,
            "against": against,
            "difference": found.mean,
            "low": found.low if several else None,
            "high": found.high if several else None,
            "wins": found.wins,
            "seeds": found.seeds,
            "sure": found.sure and several,
        }


def verdict(experiment: Experiment) -> str:
    """One sentence or two: the best, the gap to the next, and what the seeds say of it."""
    order, metric, better = ranked(experiment), experiment.history.metric, experiment.history.higher_is_better
    if len(order) < 2:
        return ""
    (best, values, level), (second, theirs, _) = order[:2]
    gap = paired(values, theirs, better)
    said = f"{best.label} has the {'highest' if better else 'lowest'} test {metric}, {short(level)}"
    if gap is None:
        return f"{said}; no seed is common to it and {second.label}, so that the two cannot be paired."
    side = "above" if better else "below"
    if gap.mean == 0:
        said = f"{best.label} and {second.label} have the same mean test {metric}, {short(level)}."
        if len(order) > 2 and (next_gap := paired(values, order[2][1], better)) is not None:
            apart = f"{gap_text(abs(next_gap.mean))} {'below' if better else 'above'}"
            said += f" {order[2][0].label} comes next, {apart} ({next_gap.support})."
        return said
    said += f": {gap_text(abs(gap.mean))} {side} {second.label} ({gap.support})."
    if gap.seeds < 2:
        return said
    if best.alike and second.alike:
        return f"{said} Their seeds gave the same results up to rounding, and say nothing about chance."
    level_with = [
        entry.label
        for entry, others, _ in order[1:]
        if (against := paired(values, others, better)) is not None and not against.sure
    ]
    if level_with:
        return f"{said} These seeds do not tell it apart from {_and(level_with)}."
    return f"{said} The seeds support it against every other method."


def gap_text(value: float) -> str:
    """A difference with one digit more than the figures of the tables have."""
    return short(value) if abs(value) >= 100 else f"{value:.4f}"


def _and(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
