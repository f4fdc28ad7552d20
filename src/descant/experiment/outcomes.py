"""What came out under attack: the figures of every place of a table of robustness, and each method's worst case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from descant.errors import SettingError, unknown
from descant.experiment.attackgrid import CLEAN, NONE, Place
from descant.experiment.run import Run
from descant.experiment.table import alike, check_first, short, with_spread
from descant.methods import METHODS

if TYPE_CHECKING:  # tables are made where they are asked for
    import polars as pl

RULES = ("chosen_on_valid", "last", "best_on_test")
STAR = "★"  # a collapse, as in the papers' tables


@dataclass(frozen=True)
class Outcome:
    """The test metric of the benign clients at a place: over its seeds the mean, the spread and the range.

    `variance` is that over clients, as the mean over seeds. Where a seed collapsed, there are no figures: a mean
    over those that are left would flatter the method. `collapsed` has the rounds, of the earliest first.
    """

    place: Place
    seeds: int
    attackers: int  # the mean over seeds, rounded
    collapsed: tuple[int, ...]
    mean: float
    spread: float
    low: float
    high: float
    variance: float
    round: float
    assumed: int | float | None = None  # what the defence takes the number or share of attackers to be, if any
    mute: bool = False  # whether the method sends nothing, so that no attack reaches the benign
    examples: float = 0.0  # example gradients a client in the whole run, as the mean over seeds
    equal_compute: bool | None = None  # whether the methods' are equal at this place; none where a seed collapsed

    @property
    def text(self) -> str:
        """As the papers print it, with the spread over seeds: 0.885 ±0.002 (0.010), or a star and the round."""
        if self.collapsed:
            first, last = self.collapsed[0], self.collapsed[-1]
            rounds = f"{first}" if first == last else f"{first}–{last}"
            some = f" ({len(self.collapsed)} of {self.seeds})" if len(self.collapsed) < self.seeds else ""
            return f"{STAR} {rounds}{some}"
        if not isfinite(self.mean):
            return "–"
        figure = with_spread(self.mean, self.spread if self.seeds > 1 else None)
        return f"{figure} ({self.variance:.3f})" if self.variance < 100 else f"{figure} ({short(self.variance)})"


def outcomes(runs: Mapping[Place, Sequence[Run]], rule: str | None = None, first: int = 0) -> list[Outcome]:
    """The outcome of every place, at the rounds that `rule` names, chosen from `first` on."""
    if not runs:
        raise SettingError("a table of robustness needs at least one run")
    every = [(place.method, run) for place, there in runs.items() for run in there]
    check_first(every, first)
    rule, model = rule or rule_of(runs, first), model_of(runs)
    if rule not in RULES:
        raise unknown("rule", rule, RULES)
    return _weighed([_outcome(place, there, model, rule, first) for place, there in runs.items()])


def _weighed(found: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that say whether methods computed equally much under the same attack by the same share.

    What collapsed has no figure that could be compared, and stopped computing.
    """
    spent: dict[Place, list[float]] = {}
    for outcome in found:
        if not outcome.collapsed:
            spent.setdefault(replace(outcome.place, method=""), []).append(outcome.examples)
    equal = {place: alike(values) for place, values in spent.items()}
    return [o if o.collapsed else replace(o, equal_compute=equal[replace(o.place, method="")]) for o in found]


def model_of(runs: Mapping[Place, Sequence[Run]]) -> str:
    """The model that figures are of: what clients deploy, if it was evaluated."""
    every = [run for there in runs.values() for run in there]
    return "personal" if all("personal" in run.history.evaluated for run in every) else "shared"


def rule_of(runs: Mapping[Place, Sequence[Run]], first: int = 0) -> str:
    """How rounds are chosen by default: on validation data, where all runs that did not collapse have some."""
    model, lasting = model_of(runs), [run for there in runs.values() for run in there if run.collapse is None]
    chosen = all(run.history.best_round(model, "valid", first) is not None for run in lasting)
    return "chosen_on_valid" if chosen else "last"


def _outcome(place: Place, runs: Sequence[Run], model: str, rule: str, first: int) -> Outcome:
    summaries, metric = [run.summary(first) for run in runs], runs[0].history.metric
    collapsed = sorted(run.collapse.round for run in runs if run.collapse is not None)

    def each(figure: str) -> Any:
        values = [summary.get(f"{model}.{figure}@{rule}", np.nan) for summary in summaries]
        return np.full(len(runs), np.nan) if collapsed else np.array(values, dtype=float)

    means = each(f"test_{metric}.mean")
    return Outcome(
        place=place,
        seeds=len(runs),
        assumed=place.assumed if place.assumed is not None else _assumed(runs[0].config["aggregator"]),
        mute=getattr(METHODS.get(runs[0].config["method"]["name"]), "mute", False),
        attackers=round(float(np.mean([summary["malicious"] for summary in summaries]))),
        collapsed=tuple(collapsed),
        mean=float(means.mean()),
        spread=float(means.std(ddof=1)) if len(means) > 1 else 0.0,
        low=float(means.min()),
        high=float(means.max()),
        variance=float(each(f"test_{metric}.variance").mean()),
        examples=float(np.mean([summary["examples_per_client"] for summary in summaries])),
        round=float(each("round").mean()),
    )


def _assumed(aggregator: Any) -> int | float | None:
    """The number or share of attackers that a defence assumes; of several in a row, the first that assumes any."""
    steps = aggregator if isinstance(aggregator, list) else [aggregator]
    return next((step["f"] for step in steps if step.get("f") is not None), None)


def worst_cases(found: Iterable[Outcome], higher_is_better: bool = True) -> dict[tuple[str, float], Outcome]:
    """The worst attack on every method, by every fraction: a defence is as good as its worst case.

    A collapse is worse than any figure, and an earlier one worse than a later. What has no figure at all is left
    out, and so is what stands in the grid of assumed attackers. Of a method that sends nothing it is `NONE`.
    """
    worst: dict[tuple[str, float], Outcome] = {}
    for outcome in found:
        place = outcome.place
        if place.attack == CLEAN or place.assumed is not None:
            continue
        if not outcome.collapsed and not isfinite(outcome.mean):
            continue
        at = (place.method, place.fraction)
        if at not in worst or _goodness(outcome, higher_is_better) < _goodness(worst[at], higher_is_better):
            worst[at] = outcome
    return {at: replace(o, place=replace(o.place, attack=NONE)) if o.mute else o for at, o in worst.items()}


def _goodness(outcome: Outcome, higher_is_better: bool) -> tuple[float, float]:
    """What orders outcomes from worst to best."""
    if outcome.collapsed:
        return -inf, float(outcome.collapsed[0])
    return (outcome.mean if higher_is_better else -outcome.mean), 0.0


def outcomes_frame(found: Iterable[Outcome], metric: str) -> pl.DataFrame:
    """One row a place, for programs: no figure is null, a collapse has its earliest round.

    `assumed` is what the defence takes the number or the share of attackers to be, where it assumes any; `in_table`
    is false in the grid in which that is held against the truth. `examples_per_client` are example gradients of the
    whole run, and `equal_compute` is false where those of methods differ under the same attack by the same share.
    """
    import polars as pl

    kinds: dict[str, Any] = {"method": pl.String, "attack": pl.String, "fraction": pl.Float64}
    kinds |= {"assumed": pl.Float64, "attackers": pl.Int64, "seeds": pl.Int64, "collapsed": pl.Int64}
    kinds |= {"collapsed_round": pl.Int64, f"test_{metric}": pl.Float64, f"test_{metric}_spread": pl.Float64}
    kinds |= {"low": pl.Float64, "high": pl.Float64, "variance": pl.Float64, "round": pl.Float64}
    kinds |= {"in_table": pl.Boolean, "examples_per_client": pl.Float64, "equal_compute": pl.Boolean}
    lines = [
        (
            *(o.place.method, o.place.attack, o.place.fraction, o.assumed, o.attackers, o.seeds),
            *(len(o.collapsed), o.collapsed[0] if o.collapsed else None),
            *(v if isfinite(v) else None for v in (o.mean, spread, o.low, o.high, o.variance, o.round)),
            *(o.place.assumed is None, o.examples, o.equal_compute),
        )
        for o in found
        for spread in (o.spread if o.seeds > 1 else inf,)  # of one seed there is none
    ]
    return pl.DataFrame(lines, schema=kinds, orient="row")
