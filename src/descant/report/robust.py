"""The page of a table of robustness: what holds, tables as in the papers, figures, and who collapsed when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from descant.experiment import Run
from descant.experiment.assumed import beyond
from descant.experiment.attackgrid import CLEAN, Place, percent
from descant.experiment.outcomes import Outcome, model_of, outcomes, rule_of, worst_cases
from descant.experiment.table import at_evaluation, compute_said, of_fewer, over_seeds, rows
from descant.report.figure import Figure, Palette
from descant.report.gather import Entry
from descant.report.page import facts, filled, legend, placed
from descant.report.robust_figures import Drawn, number, robust_figures, robust_palette
from descant.report.robust_verdict import Contest, figures_by_seed, verdict
from descant.report.tables import Table, TableCell, full_settings

_KEY = "robustness"
_ROUNDS = {
    "chosen_on_valid": "the round chosen on validation data",
    "last": "the last round",
    "best_on_test": "the best round on test data",
}


class RobustReport:
    """Outcomes under attack as tables and figures; rounds are those that `rule` names, chosen from `first` on."""

    def __init__(
        self, runs: Mapping[Place, Sequence[Run]], title: str | None = None, rule: str | None = None, first: int = 0
    ) -> None:
        self.runs, self.rule, self.first = runs, rule or rule_of(runs, first), first
        history = next(iter(runs.values()))[0].history
        self.drawn = Drawn(outcomes(runs, self.rule, first), history.metric, history.higher_is_better)
        self.worst = worst_cases(self.drawn.found, history.higher_is_better)
        self.seeds = max(outcome.seeds for outcome in self.drawn.found)  # where none is missing
        self.config = next(iter(runs.values()))[0].config
        self.title = title or f"descant: robustness on {self.config['data']['name']}"

    @property
    def figures(self) -> list[Figure]:
        return robust_figures(self.drawn, self.palette)

    @property
    def alone(self) -> set[str]:
        """The methods that send nothing, out of the attackers' reach."""
        return {outcome.place.method for outcome in self.drawn.found if outcome.mute}

    @property
    def palette(self) -> Palette:
        return robust_palette(self.drawn.methods, self.alone)

    @property
    def tables(self) -> dict[str, Table]:
        """By title: each method's worst attack, a table an attack as the papers print them, guesses, collapses."""
        gone = self.collapses()
        shown = self.worst_tables | self.attack_tables | self.assumed_tables
        return shown | ({"Collapses": gone} if gone.rows else {})

    @property
    def attack_tables(self) -> dict[str, Table]:
        if not self.drawn.attacks:
            return {"Nobody attacks": self.table_of(CLEAN)}
        return {f"Under {attack}": self.table_of(attack) for attack in self.drawn.attacks}

    @property
    def worst_tables(self) -> dict[str, Table]:
        return {"The worst attack on each method": self.worst_table()} if self.worst else {}

    @property
    def assumed_tables(self) -> dict[str, Table]:
        """Where numbers of attackers are assumed, a table an attack: what is assumed against what is true."""
        tables = {attack: self.assumed_table_of(attack) for attack in self.drawn.attacks}
        return {f"Assumed attackers, under {attack}": table for attack, table in tables.items() if table.rows}

    def assumed_table_of(self, attack: str) -> Table:
        """What each defence assumes against the true fractions, under one attack."""
        under = {o.place: o for o in self.drawn.found if o.place.assumed is not None}
        under = {place: o for place, o in under.items() if place.attack in (attack, CLEAN)}
        fractions = sorted({place.fraction for place in under})
        guesses = dict.fromkeys((place.method, place.assumed) for place in under if place.attack == attack)
        lines = []
        for method, f in guesses:
            named = f"{method}, f = {number(f)}"
            found = (under.get(Place(method, attack if x else CLEAN, x, f)) for x in fractions)
            lines.append((TableCell(named, named), *map(self._cell, found)))
        caption = "As above; defences take the share or the number of attackers to be f, whatever it is."
        return Table(caption, ("method", *map(_share, fractions)), tuple(lines))

    def table_of(self, attack: str) -> Table:
        """Methods against fractions, under one attack."""
        under = {(p.method, p.fraction): o for p, o in self.drawn.table.items() if p.attack in (attack, CLEAN)}
        fractions = sorted({fraction for _, fraction in under})
        lines = [
            (TableCell(method, method), *(self._cell(under.get((method, fraction))) for fraction in fractions))
            for method in self.drawn.methods
        ]
        return Table("As above, by the share of attackers.", ("method", *map(_share, fractions)), tuple(lines))

    def worst_table(self) -> Table:
        """Each method under its worst attack, by every fraction."""
        fractions = self.drawn.fractions
        lines = [
            (
                TableCell(method, method),
                *(self._cell(self.worst.get((method, fraction)), named=True) for fraction in fractions),
            )
            for method in self.drawn.methods
        ]
        caption = f"Figures are the {self.said()}"
        return Table(caption, ("method", *map(_share, fractions)), tuple(lines))

    def collapses(self) -> Table:
        """Who collapsed under what, in which round, and why."""
        lines = []
        for place, runs in self.runs.items():
            for run in runs:
                if run.collapse is not None:
                    assumed = "" if place.assumed is None else f", f = {place.assumed:g}"
                    told = (place.method + assumed, place.attack, percent(place.fraction))
                    texts = [TableCell(text, text) for text in told]
                    seed, round = int(run.config["seed"]), run.collapse.round
                    numbers = [TableCell(str(seed), seed), TableCell(str(round), round)]
                    lines.append((*texts, *numbers, TableCell(run.collapse.why)))
        columns = ("method", "attack", "attackers", "seed", "round", "why")
        return Table("Runs that collapsed, in which round, and why.", columns, tuple(lines))

    def _cell(self, outcome: Outcome | None, named: bool = False) -> TableCell:
        if outcome is None:
            return TableCell("–")
        told = (outcome.text, of_fewer(outcome.seeds, self.seeds), outcome.place.attack if named else "")
        return TableCell(", ".join(filter(None, told)), outcome.mean if isfinite(outcome.mean) else None)

    def said(self) -> str:
        """What a figure of the tables is."""
        over = over_seeds((o.seeds for o in self.drawn.found), self.seeds)
        text = (
            f"test {self.drawn.metric} of the benign clients{over}, and in parentheses its variance over clients, "
            f"at {_ROUNDS[self.rule]}; a star is a collapse, with its round, and worse than any figure."
        )
        looks = " This choice looks at the test data: it is here because papers print it."
        return text + (looks if self.rule == "best_on_test" else "")

    def verdict(self) -> str:
        """For every fraction, who has the best worst case, and who collapses; of one method alone, how it fares."""
        return " ".join(filter(None, (verdict(self._contest(fraction)) for fraction in self.drawn.fractions)))

    def _contest(self, fraction: float) -> Contest:
        model, rule = model_of(self.runs), self.rule
        figures = {
            (place.method, place.attack): figures_by_seed(runs, model, rule, self.first)
            for place, runs in self._attacked()
            if place.fraction == fraction
        }
        worst = {method: outcome for (method, share), outcome in self.worst.items() if share == fraction}
        return Contest(fraction, worst, figures, self.alone, self.drawn.higher_is_better)

    def notices(self) -> list[str]:
        """What a reader must know first."""
        said = []
        for place, outcome in self.drawn.table.items():
            if place.attack != CLEAN and not outcome.attackers:
                said.append(f"{place.method}, {place.attack}, {percent(place.fraction)}: that is nobody here.")
        several = {(place.method, place.fraction): runs[0] for place, runs in self._attacked()}
        for (method, fraction), run in several.items():
            if (what := beyond(run.config, fraction)) is not None:
                said.append(f"{method}, {percent(fraction)} of attackers: {what}.")
        if all(outcome.seeds == 1 for outcome in self.drawn.found):
            said.append("One seed: there is no spread, and small differences may be chance.")
        lasting = [(place.method, run) for place, runs in self.runs.items() for run in runs if run.collapse is None]
        return said + [note for note in (self._compute(), *at_evaluation(rows(lasting))) if note]

    def _compute(self) -> str:
        """What the methods computed where that was not the same, at the place where most of them can be compared.

        Seeds differ in who takes part, and so in examples: means over other seeds, or other attacks, tell nothing.
        """
        spent: dict[Place, dict[str, float]] = {}
        for outcome in self.drawn.found:
            if outcome.equal_compute is False:
                there = spent.setdefault(replace(outcome.place, method=""), {})
                there[outcome.place.method] = outcome.examples
        return compute_said(max(spent.values(), key=len, default={}))

    def _attacked(self) -> Iterator[tuple[Place, Sequence[Run]]]:
        """The runs of the table in which somebody attacks."""
        yield from ((p, runs) for p, runs in self.runs.items() if p.attack != CLEAN and p.assumed is None)

    def html(self) -> str:
        """The page: one file that opens from disk and needs no network."""
        specs: dict[str, Any] = {}
        methods = self.drawn.methods
        first = {m: next(tuple(runs) for place, runs in self.runs.items() if place.method == m) for m in methods}
        section = {
            "key": _KEY,
            "title": str(self.config["data"]["name"]),
            "facts": facts(*(run.config for runs in self.runs.values() for run in runs)),
            "verdict": self.verdict(),
            "notices": self.notices(),
            "tables": self.tables,
            "overviews": {},
            "legend": legend(self.palette.styles, methods),
            "figures": [placed(_KEY, figure, specs) for figure in self.figures],
            "settings": {method: full_settings(Entry(method, runs)) for method, runs in first.items()},
        }
        several = {id(run) for runs in self.runs.values() for run in runs}
        return filled(self.title, [section], specs, len(several))


def _share(fraction: float) -> str:
    return percent(fraction) if fraction else CLEAN
