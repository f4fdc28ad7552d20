"""Runs side by side: one row a label, with the mean and the spread over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from descant.errors import SettingError, shown
from descant.experiment.allowed import is_whole
from descant.experiment.run import Run


@dataclass(frozen=True)
class LabelRow:
    """A label's figures: mean and standard deviation over its seeds, and how many of its runs collapsed."""

    label: str
    seeds: int
    collapsed: int
    mean: dict[str, float]
    spread: dict[str, float]


def rows(labelled: Iterable[tuple[str, Run]], first: int = 0) -> list[LabelRow]:
    """One row a label, over all its seeds. The spread is the standard deviation of the sample (0 for one seed)."""
    labelled = list(labelled)
    check_first(labelled, first)
    by_label: dict[str, list[dict[str, Any]]] = {}
    for label, run in labelled:
        by_label.setdefault(label, []).append(run.summary(first))
    return [_row(label, summaries) for label, summaries in by_label.items()]


def of_fewer(seeds: int, asked: int) -> str:
    """The mark of a row that is of fewer seeds than were asked for, or than others have; else nothing."""
    return f"{seeds} of {asked} seeds" if seeds < asked else ""


def over_seeds(seeds: Iterable[int], asked: int) -> str:
    """What ± is, after a caption's other words, for rows of so many seeds; those of fewer than `asked` are marked.

    Of one seed there is no ±, and nothing to say.
    """
    if asked <= 1:
        return ""
    many = f", ± standard deviation over {asked} seeds"
    return f"{many}, or over as many as are marked" if any(n < asked for n in seeds) else many


def _row(label: str, summaries: Sequence[dict[str, Any]]) -> LabelRow:
    named = dict.fromkeys(
        n for s in summaries for n, v in s.items() if isinstance(v, int | float) and not isinstance(v, bool)
    )
    names = [n for n in named if n not in ("collapsed_round", "stopped_round")]  # most runs have none
    values = {n: np.array([s.get(n, np.nan) for s in summaries], dtype=float) for n in names}
    return LabelRow(
        label=label,
        seeds=len(summaries),
        collapsed=sum(s["collapsed"] for s in summaries),
        mean={n: float(v.mean()) for n, v in values.items()},
        spread={n: float(v.std(ddof=1)) if len(v) > 1 else 0.0 for n, v in values.items()},
    )


def check_first(labelled: Iterable[tuple[str, Run]], first: int) -> None:
    """Refuse to choose among rounds from `first` on where a run that has not collapsed was evaluated in none."""
    if not is_whole(first) or first < 0:
        said = "rounds are counted from 0 (the untrained model) on; give 0 or more"
        raise SettingError(f"first = {shown(first)}: {said}")
    for label, run in labelled:
        last = max((t for rounds in run.history.evaluated.values() for t in rounds), default=0)
        if run.collapse is None and first > last:
            raise SettingError(
                f"first = {first}: {label} (seed {run.config['seed']}) was last evaluated in round {last}, so that "
                f"there is none to choose from; give {last} or less"
            )


def beside(runs: Sequence[Run], other: str, model: str, rule: str, first: int = 0) -> tuple[float, float] | None:
    """The test metric of the `other` model in the rounds that `rule` names for `model`: mean and spread over seeds.

    So that one row of a table is of one round, though every model has a best round of its own. None where a seed
    has no such model, or no such round.
    """
    found = []
    for run in runs:
        history, summary = run.history, run.summary(first)
        columns = history.evaluated.get(other, {}).get(summary.get(f"{model}.round@{rule}", -1), {})
        column = f"test_{history.metric}"
        if column not in columns or (rule == "last" and run.collapse is not None):
            return None
        found.append(history.figure(other, summary[f"{model}.round@{rule}"], column)["mean"])
    return float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else 0.0


def short(value: float, digits: int = 3) -> str:
    """A number for a table: so many digits after the point, more where it is small, a power where it is huge."""
    if not isfinite(value):
        return "–"
    if abs(value) >= 1e6:  # a loss that has diverged: its digits say nothing
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{0 if abs(value) >= 100 else digits if abs(value) >= 0.01 or value == 0 else digits + 2}f}"


def count(value: float) -> str:
    """A mean count: whole, or with two digits where it is small, as gradients a client are where few take part."""
    return f"{value:,.0f}" if abs(value) >= 10 or float(value).is_integer() else f"{value:.2g}"


def with_spread(mean: float, spread: float | None, digits: int = 3) -> str:
    """A mean and what seeds differ by (None for one seed), with as many digits."""
    text = short(mean, digits)
    if spread is None or not isfinite(mean):
        return text
    places = len(text.partition(".")[2])
    return f"{text} ±{short(spread) if 'e' in text else f'{spread:,.{places}f}'}"


def share_text(shares: Sequence[float]) -> str:
    """The mean of some runs' shares in percent, with what they differ by."""
    percent = 100 * np.array(shares)
    return f"{with_spread(float(percent.mean()), float(percent.std(ddof=1)) if len(shares) > 1 else None, 1)} %"


def alike(values: Iterable[float], tolerance: float = 0.01) -> bool:
    """Whether the least and the greatest of some figures differ by `tolerance` of the latter, or less."""
    found = list(values)
    return not found or max(found) - min(found) <= tolerance * max(found)


def compute_note(table: Sequence[LabelRow]) -> str:
    """A sentence on what the rows' clients computed, where that is not the same; else nothing."""
    return compute_said({row.label: row.mean["examples_per_client"] for row in table})


def compute_said(spent: Mapping[str, float]) -> str:
    """The sentence of `compute_note`, from example gradients a client by label."""
    many = grouped(spent, count)
    return "" if alike(spent.values()) else f"Not at equal compute: example gradients a client are {many}."


def grouped(values: Mapping[str, float], shown: Callable[[float], str]) -> str:
    """Labels by value, those that agree together."""
    groups: dict[str, list[str]] = {}
    for label, value in sorted(values.items(), key=lambda item: item[1]):
        groups.setdefault(shown(value), []).append(label)
    return "; ".join(f"{text} ({', '.join(labels)})" for text, labels in groups.items())


def at_evaluation(table: Sequence[LabelRow]) -> list[str]:
    """A sentence on every row whose clients train on when their models are evaluated."""
    name = "evaluation_gradients_per_client"
    return [
        f"{row.label}: a client takes {count(row.mean[name])} minibatch gradients more whenever its model is "
        "evaluated or deployed; they are in no other figure."
        for row in table
        if row.mean.get(name, 0) > 0
    ]


def whose(runs: Iterable[Run]) -> str:
    """A sentence on whose the figures are where clients attack; nothing where nobody does."""
    found = sorted({int(run.history.federation.members("malicious").sum()) for run in runs})
    if not found or found[-1] == 0:
        return ""
    many = str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"Figures are of the benign clients, without the {many} malicious."


def noted(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is noted of the data of runs with these settings: each note once, in order."""
    return list(dict.fromkeys(note for config in configs for note in config["data"].get("notes", ())))


def human_bytes(count: float) -> str:
    """Bytes as people write them, in powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
