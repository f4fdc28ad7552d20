"""Who wins, by how much, and whether the seeds support it: differences paired over seeds, with an interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

from descant.experiment.table import short
from descant.report.gather import Entry, Experiment

# The 97.5 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom; from the last on 1.96 is near.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_ROUNDING = 1e-6  # of the figures: what the order of a sum in 32 bits can make of the same numbers


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
    def ahead(self) -> bool:
        """Whether the interval lies above 0: surely better, and not surely worse."""
        return self.sure and self.low > 0

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
    """Compare figures by seed; None where no seed has both. What differs by rounding alone is the same."""
    sign = 1.0 if higher_is_better else -1.0
    both = [(a[seed], b[seed]) for seed in a if seed in b and isfinite(a[seed]) and isfinite(b[seed])]
    if not both:
        return None
    least = _ROUNDING * max(abs(value) for pair in both for value in pair)
    gaps = [sign * (own - other) if abs(own - other) > least else 0.0 for own, other in both]
    n, mean = len(gaps), sum(gaps) / len(gaps)
    mean = mean if abs(mean) > least else 0.0
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


Row = tuple[Entry, dict[str, float], float]  # an entry, its figure by seed, and the mean over its own seeds


def ranked(experiment: Experiment) -> list[Row]:
    """The entries from best to worst; one that lacks the figure in any seed, or collapsed in one, is left out.

    With the same seeds that is by the mean over them. With others, means may tell the seeds apart and not the
    methods: the best is then who is behind nobody over the seeds that both have, and the others follow by how far
    they are behind it. Where there is no such entry, the order is that of the means.
    """
    found = [(entry, by_seed(entry, experiment)) for entry in experiment.entries if not entry.collapsed]
    whole = [
        (entry, values, sum(values.values()) / len(values))
        for entry, values in found
        if all(map(isfinite, values.values()))
    ]
    better = experiment.history.higher_is_better
    order = sorted(whole, key=lambda row: row[2], reverse=better)
    if _same_seeds(order):
        return order
    gaps = {row[0].label: gaps_of(row, order, better) for row in order}
    # Who can be held against most others comes first, and then the highest mean.
    widest = sorted(order, key=lambda row: -sum(gap is not None for gap in gaps[row[0].label].values()))
    best = next((row for row in widest if unbeaten(gaps[row[0].label].values())), None)
    if best is None:
        return order
    behind = gaps[best[0].label]
    others = [row for row in order if row is not best]
    return [best, *sorted(others, key=lambda row: gap.mean if (gap := behind[row[0].label]) is not None else inf)]


def gaps_of(row: Row, order: Sequence[Row], better: bool) -> dict[str, Paired | None]:
    """How much better one is than each other, by label."""
    return {other.label: paired(row[1], values, better) for other, values, _ in order if other is not row[0]}


def unbeaten(gaps: Iterable[Paired | None]) -> bool:
    """Whether nobody is ahead of the one whose differences these are, and somebody can be held against it."""
    known = [gap for gap in gaps if gap is not None]
    return bool(known) and all(gap.mean >= 0 for gap in known)


def _same_seeds(order: Sequence[Row]) -> bool:
    return len({frozenset(values) for _, values, _ in order}) < 2


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
    """A few sentences: the best, or all that are level, the gap to the next, and what the seeds say of it."""
    order, metric, better = ranked(experiment), experiment.history.metric, experiment.history.higher_is_better
    gone = _collapsed(experiment, len(order))
    if len(order) < 2:
        return gone
    best, _, level = order[0]
    gaps = gaps_of(order[0], order, better)
    if not unbeaten(gaps.values()):
        return _undecided(order, gaps, metric, better) + gone
    top = [order[0], *(row for row in order[1:] if (gap := gaps[row[0].label]) is not None and gap.mean == 0)]
    rest = [row for row in order[1:] if (gap := gaps[row[0].label]) is not None and gap.mean > 0]
    same_seeds = _same_seeds(order)
    figure = f", {short(level)}" if same_seeds else " over common seeds"
    names = _and([entry.label for entry, *_ in top])
    if len(top) > 1:
        said = f"{names} have the same mean test {metric}{figure}."
    else:
        said = f"{names} has the {'highest' if better else 'lowest'} test {metric}{figure}"
    if rest:
        gap = gaps[rest[0][0].label]
        assert gap is not None
        apart = f"{gap_text(gap.mean)} {'above' if better else 'below'} {rest[0][0].label}"
        whose = f" {best.label} is {apart}, which comes next" if len(top) > 1 else f": {apart}"
        said += f"{whose} ({gap.support})."
        said += _supported(top, rest, better, every=None not in gaps.values())
    if not same_seeds:
        said += _other_seeds(best.label, gaps)
    return said + gone


def _collapsed(experiment: Experiment, left: int) -> str:
    """Who collapsed and stands in no order: figures of theirs are from before that."""
    gone = [entry for entry in experiment.entries if entry.collapsed]
    if not gone or len(experiment.entries) < 2:
        return ""
    counts = [f"{entry.label} in {len(entry.collapsed)} of {len(entry.runs)} seeds" for entry in gone]
    if len(gone) == len(experiment.entries):
        return f"Every method collapsed: {_and(counts)}."
    counts[0] = counts[0].replace(f"{gone[0].label} in", f"{gone[0].label} collapsed in", 1)
    said = f"{_and(counts)}, and {'is' if len(gone) == 1 else 'they are'} not ranked."
    return f" {said}" if left > 1 else said


def _supported(top: Sequence[Row], rest: Sequence[Row], better: bool, every: bool) -> str:
    """Whether the seeds tell those at the top from the rest, which may be `every` other; nothing with one seed."""
    pairs = [(a[0], b[0], paired(a[1], b[1], better)) for b in rest for a in top]
    known = [(own, other, gap) for own, other, gap in pairs if gap is not None]
    if all(gap.seeds < 2 for _, _, gap in known):
        return ""
    if top[0][0].alike and rest[0][0].alike:
        return " Their seeds gave the same results up to rounding, and say nothing about chance."
    unsure = [other.label for own, other, gap in known if not gap.ahead or (own.alike and other.alike)]
    it = "it" if len(top) == 1 else "them"
    if unsure:
        return f" These seeds do not tell {it} apart from {_and(list(dict.fromkeys(unsure)))}."
    whom = "every other method" if every else _and([entry.label for entry, *_ in rest])
    return f" The seeds support {'it' if len(top) == 1 else 'this'} against {whom}."


def _other_seeds(best: str, gaps: Mapping[str, Paired | None]) -> str:
    """What a reader must know of a comparison in which methods have other seeds."""
    said = " The methods do not have the same seeds: means over all of them may be in another order."
    if alone := [label for label, gap in gaps.items() if gap is None]:
        said += f" No seed is common to {best} and {_or(alone)}, which cannot be paired with it."
    return said


def _undecided(order: Sequence[Row], gaps: Mapping[str, Paired | None], metric: str, better: bool) -> str:
    """Why nobody is called the best, where methods have other seeds: nobody is unbeaten over common ones."""
    best, _, level = order[0]
    side = "above" if better else "below"
    said = (
        f"{best.label} has the {'highest' if better else 'lowest'} test {metric} over its own seeds, {short(level)}"
    )
    ahead = [
        f"{label} is {gap_text(-gap.mean)} {side} it over {gap.seeds} common seed{'s' if gap.seeds > 1 else ''}"
        for label, gap in gaps.items()
        if gap is not None and gap.mean < 0
    ]
    alone = [label for label, gap in gaps.items() if gap is None]
    if not ahead:
        return f"{said}; no seed is common to it and {_or(alone)}, so that they cannot be paired."
    return f"{said}, but {_and(ahead)}; over common seeds none is ahead of all others."


def gap_text(value: float) -> str:
    """A difference with one digit more than the figures of the tables have."""
    if 0 < abs(value) < 0.00005:  # four digits would call it nothing
        return f"{value:.1g}"
    return short(value) if abs(value) >= 100 else f"{value:.4f}"


def _and(labels: Sequence[str], word: str = "and") -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} {word} {labels[-1]}"


def _or(labels: Sequence[str]) -> str:
    return _and(labels, "or")
