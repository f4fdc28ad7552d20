"""Who has the best worst case under attack: the sentence of a table of robustness for one share of attackers.

Where runs are missing, methods have other seeds, and means would tell the seeds apart and not the methods: they are
then compared over the seeds, and under the attacks, that both have, as the verdict of a comparison does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf, isfinite

from descant.experiment import Run
from descant.experiment.attackgrid import percent
from descant.experiment.outcomes import Outcome
from descant.experiment.table import short
from descant.report.gather import Entry
from descant.report.verdict import Paired, gap_text, paired, unbeaten

Figures = Mapping[str, float]  # by seed


@dataclass(frozen=True)
class Contest:
    """Methods under attacks by one share of the clients."""

    fraction: float
    worst: Mapping[str, Outcome]  # of every method, under its worst attack
    figures: Mapping[tuple[str, str], Figures]  # of every method under every attack
    alone: AbstractSet[str]  # methods that send nothing, out of the attackers' reach
    higher_is_better: bool

    @property
    def cases(self) -> list[Outcome]:
        return [outcome for method, outcome in self.worst.items() if method not in self.alone]

    def under(self, method: str) -> dict[str, Figures]:
        """The figures of a method, by attack."""
        return {attack: values for (name, attack), values in self.figures.items() if name == method}


def figures_by_seed(runs: Sequence[Run], model: str, rule: str, first: int) -> dict[str, float]:
    """The mean test metric over the benign clients of every run, at the round that is reported."""
    figure = f"{model}.test_{runs[0].history.metric}.mean@{rule}"
    keys = Entry("", tuple(runs)).keys
    return {k: float(run.summary(first).get(figure, float("nan"))) for k, run in zip(keys, runs, strict=True)}


def verdict(contest: Contest) -> str:
    """Who has the best worst case, and who collapses; of one method alone, how it fares."""
    cases = contest.cases
    standing = [outcome for outcome in cases if not outcome.collapsed]
    said = f"With {percent(contest.fraction)} of attackers"
    if len(cases) == 1:
        return f"{said} {_fares(contest, cases[0])}{_out_of_reach(contest)}."
    if not standing:
        return f"{said} every method collapses under some attack." if cases else ""
    names = [outcome.place.method for outcome in cases if outcome.collapsed]
    gone = f"; {_and(names)} collapse{'s' if len(names) == 1 else ''}" if names else ""
    if len(standing) > 1 and not _same_seeds(contest, standing):
        return _over_common_seeds(contest, standing, said, gone)
    best = (max if contest.higher_is_better else min)(standing, key=lambda outcome: outcome.mean)
    alike = [o.place.method for o in standing if short(o.mean) == short(best.mean)]
    if len(alike) > 1:
        text = f"{said} {_and(alike)} have the same best worst case, {short(best.mean)}"
    else:
        text = f"{said} {_quoted(alike[0])} has the best worst case, {short(best.mean)} under {best.place.attack}"
    return f"{text}{gone}{_out_of_reach(contest)}."


def _same_seeds(contest: Contest, standing: Sequence[Outcome]) -> bool:
    """Whether all methods have the same seeds under the same attacks."""
    seeds = [_seeds(contest, outcome.place.method) for outcome in standing]
    return all(there == seeds[0] for there in seeds) and len(set(seeds[0].values())) < 2


def _seeds(contest: Contest, method: str) -> dict[str, AbstractSet[str]]:
    """The seeds that a method has under each attack."""
    return {attack: frozenset(values) for attack, values in contest.under(method).items()}


def _over_common_seeds(contest: Contest, standing: Sequence[Outcome], said: str, gone: str) -> str:
    """The sentence where methods have other seeds: the best is who is behind nobody over those that both have."""
    methods = [outcome.place.method for outcome in standing]
    gaps = {one: {other: _gap(contest, one, other) for other in methods if other != one} for one in methods}
    # Who can be held against most others comes first.
    widest = sorted(methods, key=lambda one: -sum(gap is not None for gap in gaps[one].values()))
    best = next((one for one in widest if unbeaten(gaps[one].values())), None)
    if best is None:
        why = "over common seeds nobody's worst case is ahead of all others'"
        if all(gap is None for found in gaps.values() for gap in found.values()):
            why = "no seed is common to two methods under all attacks, so that they cannot be compared"
        return f"{said} {why}{gone}."
    behind = {other: gap for other, gap in gaps[best].items() if gap is not None}
    level = [best, *(o for o, gap in behind.items() if gap.mean == 0 and unbeaten(gaps[o].values()))]
    following = min((o for o in behind if o not in level), key=lambda other: behind[other].mean, default=None)
    seeds = [_seeds(contest, method) for method in methods]
    common = "seeds" if all(each.keys() == seeds[0].keys() for each in seeds) else "attacks and seeds"
    whose = (
        f"{_and(level)} {'has the' if len(level) == 1 else 'have the same'} best worst case over common {common}"
    )
    if following is not None:
        gap, side = behind[following], "above" if contest.higher_is_better else "below"
        whose += f", {gap_text(gap.mean)} {side} {_quoted(following)} ({gap.support})"
    unknown = [other for other, gap in gaps[best].items() if gap is None]
    apart = f"; no seed is common to {_quoted(best)} and {_and(unknown, 'or')}" if unknown else ""
    why = "The methods do not have" if any(each != seeds[0] for each in seeds) else "Not all attacks have"
    return f"{said} {whose}{gone}{apart}{_beside(contest, best)}. {why} the same {common} there."


def _gap(contest: Contest, one: str, other: str) -> Paired | None:
    """How much better the worst case of one method is than another's, over the attacks and seeds that both have."""
    own, others = contest.under(one), contest.under(other)
    attacks = [attack for attack in own if attack in others]
    if not attacks:
        return None
    seeds = frozenset.intersection(*(frozenset(each[attack]) for attack in attacks for each in (own, others)))
    if not seeds:
        return None
    mine, theirs = (_worst({a: each[a] for a in attacks}, seeds, contest) for each in (own, others))
    return paired(mine, theirs, contest.higher_is_better)


def _worst(by_attack: Mapping[str, Figures], seeds: AbstractSet[str], contest: Contest) -> Figures:
    """The figures of some seeds under the attack whose mean over them is worst; what is no number is left out."""
    sign = 1.0 if contest.higher_is_better else -1.0

    def goodness(values: Figures) -> float:
        known = [values[seed] for seed in seeds if isfinite(values[seed])]
        return sign * sum(known) / len(known) if known else inf

    values = min(by_attack.values(), key=goodness)
    return {seed: values[seed] for seed in sorted(seeds)}


def _beside(contest: Contest, best: str) -> str:
    """How methods that send nothing compare with the best of those that attackers reach, over common seeds."""
    side = ("above", "below") if contest.higher_is_better else ("below", "above")
    told = []
    for method in contest.worst:
        gap = _gap(contest, method, best) if method in contest.alone else None
        if gap is not None:
            apart = f"{gap_text(abs(gap.mean))} {side[gap.mean < 0]}" if gap.mean else "level with"
            told.append(f"{_quoted(method)} is {apart} {_quoted(best)} over common seeds")
    return f" ({', '.join(told)}, out of their reach)" if told else ""


def _fares(contest: Contest, worst: Outcome) -> str:
    """How the one method fares that attackers reach: there is nobody that it could be better than."""
    place = worst.place
    under = f"its worst attack, {place.attack}" if len({a for _, a in contest.figures}) > 1 else place.attack
    does = "collapses" if worst.collapsed else f"has {short(worst.mean)}"
    return f"{_quoted(place.method)} {does} under {under}"


def _out_of_reach(contest: Contest) -> str:
    """What methods have that send nothing, beside those that attackers reach."""
    found = [outcome for method, outcome in contest.worst.items() if method in contest.alone]
    own = [f"{_quoted(o.place.method)} has {short(o.mean)}" for o in found if not o.collapsed]
    return f" ({', '.join(own)}, out of their reach)" if own else ""


def _and(labels: Sequence[str], word: str = "and") -> str:
    quoted = [_quoted(label) for label in labels]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"


def _quoted(label: str) -> str:
    """A label in a sentence: in quotes where it has a comma of its own."""
    return f"'{label}'" if "," in label else label
