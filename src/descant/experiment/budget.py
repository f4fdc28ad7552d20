"""Accuracy per byte: what a method reaches within a budget, and what it spends to reach a target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from descant.errors import SettingError, shown
from descant.experiment.history import History
from descant.experiment.run import Run
from descant.experiment.table import alike, check_first
from descant.task import METRICS

if TYPE_CHECKING:  # tables are imported where they are used
    import polars as pl

Rule = Literal["chosen_on_valid", "last", "best_on_test"]
_RULES = ("chosen_on_valid", "last", "best_on_test")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgt]?b?)\s*", re.IGNORECASE)
_WORD = 4  # bytes of a number, as the papers count


@dataclass(frozen=True)
class Goals:
    """Budgets in bytes, and targets of the test metric; with `papers`, budgets and costs are in numbers of 32 bits.

    The papers' count (lp-proj, Tables 1, 5 and 11) differs in one more thing. Their code evaluates a round before
    it is carried out, and bills it already: what was reached in t rounds costs t + 1, and the untrained model 1.
    """

    budgets: tuple[int, ...] = ()
    targets: tuple[float, ...] = ()
    papers: bool = False

    @classmethod
    def of(cls, budgets: Any = None, targets: Any = None, papers: Any = False) -> Goals:
        """Goals as people write them: one or several, budgets like 328020, "300 kB" or "2MB"."""
        if not isinstance(papers, bool):
            raise SettingError(f"papers = {shown(papers)}: it must be true or false")
        for i, value in enumerate(_several(budgets) if papers else []):
            if isinstance(value, str) and not value.strip().isdigit():
                raise SettingError(f"budgets[{i}] = {shown(value)}: the papers' count is in numbers, as in 328020")
        sizes = tuple(_size(f"budgets[{i}]", value) for i, value in enumerate(_several(budgets)))
        wanted = tuple(_target(f"targets[{i}]", value) for i, value in enumerate(_several(targets)))
        if not sizes and not wanted:
            raise SettingError(
                "budgets, targets: give at least one budget in bytes, as in budgets: [300 kB], "
                "or one target of the test metric, as in targets: [0.6]"
            )
        for name, values in (("budgets", sizes), ("targets", wanted)):
            if len(set(values)) < len(values):
                raise SettingError(f"{name}: one of them stands twice")
        return cls(sizes, wanted, papers)


def check_targets(goals: Goals, metric: str) -> None:
    """Refuse a target of a metric that is a share, such as the accuracy, if it is 0 or less, or above 1."""
    for i, target in enumerate(goals.targets if metric in METRICS else ()):
        if target <= 0:
            remedy = "every model reaches that; give a number above 0, up to 1"
            raise SettingError(f"targets[{i}] = {target:g}: {remedy}")
        if target > 1:
            remedy = f"{target / 100:g} for {target:g} %" if target <= 100 else "a number from 0 to 1"
            raise SettingError(f"targets[{i}] = {target:g}: the metric '{metric}' is a share: give {remedy}")


def check_parts(at: str, parts: Sequence[str]) -> None:
    """Refuse an evaluation, written at `at`, that leaves out test data, which budgets and targets are of."""
    if "test" not in parts:
        what = "parts with 'test': budgets and targets are of the metric on test data"
        raise SettingError(f"{at}.parts = {list(parts)}: it must be {what}")


def costs(history: History, papers: bool = False) -> dict[int, float]:
    """What all clients have sent and received, up to every round that was evaluated.

    The untrained model, of round 0, is there in the papers' count alone, where it costs a round.
    """
    rounds = [row["bytes_up"] + row["bytes_down"] for row in history.rounds]
    total = np.cumsum(rounds)
    if papers:  # the next round is billed, too; the one after the last would cost what that did
        total = (total + np.array([*rounds[1:], *rounds[-1:]])) / _WORD
    spent = {row["round"]: float(cost) for row, cost in zip(history.rounds, total, strict=True)}
    spent |= {0: rounds[0] / _WORD} if papers and rounds else {}
    evaluated = {t for found in history.evaluated.values() for t in found}
    return {t: cost for t, cost in spent.items() if t in evaluated}


def within(
    run: Run, budget: float, *, papers: bool = False, rule: Rule | None = None, first: int = 0
) -> tuple[int, float] | None:
    """The round and the test metric that a budget allows; None where the first round exceeds it.

    Rounds within the budget are chosen by `rule`: on validation data (the last where there are none), the last, or
    the best on test data, which papers print.
    """
    history, model = run.history, _deployed(run)
    known = {t for t, cost in costs(history, papers).items() if t >= first and cost <= budget}
    tested, test = history.curve(model, f"test_{history.metric}")
    figures = {t: float(x) for t, x in zip(tested, test.get("mean", ()), strict=True) if t in known and isfinite(x)}
    if not figures:
        return None
    if rule == "best_on_test":
        chosen = _best(figures, history.higher_is_better)
    elif rule == "last":
        chosen = max(figures)
    else:
        looked, valid = history.curve(model, f"valid_{history.metric}")
        means = {t: float(x) for t, x in zip(looked, valid.get("mean", ()), strict=True) if t in figures}
        means = {t: x for t, x in means.items() if isfinite(x)}
        chosen = _best(means, history.higher_is_better) if means else max(figures)
    return chosen, figures[chosen]


def reaching(run: Run, target: float, *, papers: bool = False, first: int = 0) -> tuple[int, float] | None:
    """The first round whose mean test metric is the target or better, and what it cost; None if there is none."""
    history = run.history
    spent = costs(history, papers)
    rounds, test = history.curve(_deployed(run), f"test_{history.metric}")
    for t, x in sorted(zip(rounds, test.get("mean", ()), strict=True)):
        good = x >= target if history.higher_is_better else x <= target
        if good and t in spent and t >= first:
            return t, spent[t]
    return None


def budget_frame(
    runs: Mapping[str, Sequence[Run]], goals: Goals, rule: Rule | None = None, first: int = 0
) -> pl.DataFrame:
    """One row a method and goal: mean and standard deviation over the seeds that have a figure, and how many do.

    Of one seed there is no deviation. `unit` is that of budgets and costs.

    A row with a `budget` has the test metric as `value`; one with a `target` has the cost of reaching it.
    `examples_per_client` are the example gradients a client until the row's `round`, and `equal_compute` is false
    where those of the methods differ for the same goal. Both are null where no seed has a figure.
    """
    import polars as pl

    if rule is not None and rule not in _RULES:
        raise SettingError(f"rule = {shown(rule)}: it must be one of {', '.join(_RULES)}")
    check_first([(label, run) for label, there in runs.items() for run in there], first)
    for label, there in runs.items():
        for run in there:
            rounds, test = run.history.curve(_deployed(run), f"test_{run.history.metric}")
            if not rounds:
                raise SettingError(
                    f"evaluate: {label} was not evaluated on test data, which budgets and targets are of"
                )
            if not (test["mean"] > 1).any():  # a metric of the user's may be in per cent
                check_targets(goals, run.history.metric)
    lines: list[dict[str, Any]] = []
    for label, there in runs.items():
        for budget in goals.budgets:
            found = [within(run, budget, papers=goals.papers, rule=rule, first=first) for run in there]
            lines.append({"method": label, "budget": budget, "target": None} | _line(there, found))
        for target in goals.targets:
            found = [reaching(run, target, papers=goals.papers, first=first) for run in there]
            lines.append({"method": label, "budget": None, "target": target} | _line(there, found))
    for line in lines:
        beside = [
            other for other in lines if (other["budget"], other["target"]) == (line["budget"], line["target"])
        ]
        spent = [other["examples_per_client"] for other in beside if other["reached"]]
        line["equal_compute"] = alike(spent) if line["reached"] else None
    kinds = {"method": pl.String, "budget": pl.Int64, "target": pl.Float64, "value": pl.Float64}
    kinds |= {"spread": pl.Float64, "round": pl.Float64, "reached": pl.Int64, "seeds": pl.Int64}
    kinds |= {"examples_per_client": pl.Float64, "equal_compute": pl.Boolean}
    unit = "numbers" if goals.papers else "bytes"
    return pl.DataFrame(lines, schema=kinds).with_columns(unit=pl.lit(unit))


def _line(runs: Sequence[Run], found: Sequence[tuple[int, float] | None]) -> dict[str, Any]:
    there = [entry for entry in found if entry is not None]
    spent = [_examples(run, entry[0]) for run, entry in zip(runs, found, strict=True) if entry is not None]
    values = np.array([value for _, value in there])
    return {
        "value": float(values.mean()) if there else None,
        "spread": float(values.std(ddof=1)) if len(there) > 1 else None,
        "round": float(np.mean([t for t, _ in there])) if there else None,
        "reached": len(there),
        "seeds": len(found),
        "examples_per_client": float(np.mean(spent)) if spent else None,
    }


def _examples(run: Run, until: int) -> float:
    """Gradients of single examples that a client took, up to a round."""
    taken = sum(row["examples"] for row in run.history.rounds if row["round"] <= until)
    return float(taken / run.history.federation.members("all").sum())


def _best(figures: Mapping[int, float], higher: bool) -> int:
    """The earliest of the best rounds."""
    return (max if higher else min)(sorted(figures), key=lambda t: figures[t])


def _deployed(run: Run) -> str:
    return "personal" if "personal" in run.history.evaluated else "shared"


def _several(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _size(name: str, value: Any) -> int:
    size: Any = value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        unit = match[2].lower()
        size = Fraction(match[1].rstrip(".")) * _UNITS[unit if unit in _UNITS else f"{unit}b"]
    number = isinstance(size, int | float | Fraction) and not isinstance(size, bool) and isfinite(size)
    if not number or size < 1 or size != int(size):
        raise SettingError(
            f"{name} = {shown(value)}: it must be a whole number of bytes, as 328020, '300 kB' or '2 MB'"
        )
    return int(size)


def _target(name: str, value: Any) -> float:
    try:
        found = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not isfinite(found):
        raise SettingError(f"{name} = {shown(value)}: it must be a value of the test metric, as 0.6")
    return found
