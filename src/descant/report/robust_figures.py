"""Figures of a table of robustness: accuracy against the fraction of attackers, and heat maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import altair as alt
import polars as pl

from descant.experiment.attackgrid import CLEAN, WORST, Place, percent
from descant.experiment.outcomes import STAR, Outcome, worst_cases
from descant.experiment.table import short
from descant.report.figure import HEIGHT, Chart, Figure, Palette, layered, panel_title, widened
from descant.report.look import ACCENT, FAINT, INK, Style, styles

_ROW = 30  # pixels of a heat map's row
_FRAMED = (
    "A frame marks each method's worst attack, and the last column has its figure: a defence is as good as its "
    "worst case. "
)
_LONG = 11  # letters from which on the names of attacks are set aslant


@dataclass(frozen=True)
class Drawn:
    """What the figures are of: outcomes, and the metric that they are in."""

    found: Sequence[Outcome]
    metric: str
    higher_is_better: bool = True

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(outcome.place.method for outcome in self.found))

    @property
    def attacks(self) -> list[str]:
        return list(dict.fromkeys(o.place.attack for o in self.found if o.place.attack != CLEAN))

    @property
    def fractions(self) -> list[float]:
        """The fractions by which somebody attacks."""
        return sorted({o.place.fraction for o in self.found if o.place.attack != CLEAN})

    @property
    def table(self) -> dict[Place, Outcome]:
        """The outcomes without those of the grid of assumed attackers."""
        return {outcome.place: outcome for outcome in self.found if outcome.place.assumed is None}

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest figure, for scales that are the same in all panels."""
        numbers = [n for outcome in self.found for n in (outcome.low, outcome.high) if isfinite(n)]
        low, high = widened(min(numbers), max(numbers)) if numbers else (0.0, 1.0)
        return low, high


def robust_palette(methods: Sequence[str], local: Iterable[str] = ()) -> Palette:
    """A style for every method; training alone, which attackers cannot reach, is dashed in the text's colour."""
    found = styles(methods)
    return Palette(found | {label: Style(INK, (5, 4), found[label].shape) for label in local})


def robust_figures(drawn: Drawn, palette: Palette) -> list[Figure]:
    """All figures that the outcomes have the numbers for."""
    return [*_against_fractions(drawn, palette), *_methods_and_attacks(drawn), *_assumed(drawn)]


def _against_fractions(drawn: Drawn, palette: Palette) -> list[Figure]:
    """As Figure 4 of lp-proj (Lin et al., 2024): a panel an attack, a line a method."""
    if not drawn.attacks:
        return []
    clean = {o.place.method: o for o in drawn.table.values() if o.place.attack == CLEAN}
    panels = []
    for attack in drawn.attacks:
        under = [o for o in drawn.table.values() if o.place.attack == attack]
        both = [o for method in drawn.methods for o in (clean.get(method), *_of(under, method)) if o is not None]
        panels.append(_lines(both, attack, drawn, palette))
    return [
        Figure(
            key="fractions",
            title=f"Test {drawn.metric} of the benign against the share of attackers",
            caption="One panel an attack; mean over benign clients and seeds, a rule for the range over seeds. A "
            f"line ends where its method collapses: a star ({STAR}) at the foot of the panel, in the colour of the "
            "method, marks each share by which a seed of it did. A robust method's line is flat; what trains alone "
            "is dashed, and nobody should fall below it.",
            panels=tuple(panels),
            wide=True,
        )
    ]


def _of(found: Iterable[Outcome], method: str) -> list[Outcome]:
    return [outcome for outcome in found if outcome.place.method == method]


def _lines(found: Sequence[Outcome], attack: str, drawn: Drawn, palette: Palette) -> Chart:
    low, high = drawn.span
    gone = [outcome for outcome in found if outcome.collapsed]
    step = (high - low) / 14
    rank: dict[Place, int] = {}
    for outcome in gone:  # stars of one share stand above each other
        rank[outcome.place] = sum(p.fraction == outcome.place.fraction for p in rank)
    foot = low - step * (max(rank.values(), default=-1) + 1.5)
    rows = [
        _row(outcome)
        | {"star": foot + step * (rank[outcome.place] + 0.5) if outcome.place in rank else None}
        | {"rounds": outcome.text if outcome.collapsed else None}
        for outcome in found
    ]
    labels = list(dict.fromkeys(outcome.place.method for outcome in found))
    shares = sorted({outcome.place.fraction for outcome in found})
    axis = alt.Axis(grid=False, format="~%", values=shares)
    x = alt.X("fraction:Q", title="clients that attack", axis=axis, scale=alt.Scale(padding=14))
    ticks = alt.Axis(labelExpr=f"datum.value < {low} ? '' : datum.label")  # below stand the stars
    reach = alt.Scale(domain=[foot if gone else low, high], nice=False)
    base, y = alt.Chart().encode(x), alt.Y("mean:Q", title=f"test {drawn.metric}", scale=reach, axis=ticks)
    shown = base.transform_filter("isValid(datum.mean)")
    value = alt.Tooltip("text:N", title=f"test {drawn.metric} (variance)")
    tooltip = ["method:N", alt.Tooltip("fraction:Q", format="~%"), value]
    layers = [
        shown.mark_line().encode(y, palette.colour(labels), palette.dash(labels)),
        shown.mark_rule(opacity=0.6).encode(alt.Y("low:Q"), alt.Y2("high:Q"), palette.colour(labels, legend=False)),
        shown.mark_point().encode(y, palette.colour(labels), palette.shape(labels), tooltip=tooltip),
    ]
    if gone:
        star = base.transform_filter("isValid(datum.star)").mark_text(text=STAR, fontSize=15)
        said = alt.Tooltip("rounds:N", title="collapsed in round")
        told = ["method:N", alt.Tooltip("fraction:Q", format="~%"), said]
        layers.append(star.encode(alt.Y("star:Q"), palette.colour(labels, legend=False), tooltip=told))
    data = pl.DataFrame(rows, infer_schema_length=None)
    return layered(*layers, data=data).properties(height=HEIGHT, title=panel_title(attack))


def _methods_and_attacks(drawn: Drawn) -> list[Figure]:
    """A heat map for every fraction, with each method's worst attack as a column of its own."""
    worst = worst_cases(drawn.table.values(), drawn.higher_is_better)
    panels, compared = [], False
    for fraction in drawn.fractions:
        there = [o for o in drawn.table.values() if o.place.attack != CLEAN and o.place.fraction == fraction]
        columns = [attack for attack in drawn.attacks if any(o.place.attack == attack for o in there)]
        several = len(columns) > 1
        compared = compared or several
        rows = [_row(o) | {"is_worst": several and worst.get(_key(o)) is o} for o in there]
        for outcome in [worst[at] for at in dict.fromkeys(map(_key, there)) if at in worst and several]:
            rows.append(_row(outcome) | {"attack": WORST, "is_worst": False, "under": outcome.place.attack})
        heat = _heat(
            rows, drawn, x=("attack", [*columns, *([WORST] if several else [])]), y=("method", drawn.methods)
        )
        panels.append(heat.properties(title=panel_title(f"{percent(fraction)} of the clients attack")))
    if not panels:
        return []
    return [
        Figure(
            key="attacks",
            title=f"Test {drawn.metric} of the benign, by method and attack",
            caption="The stronger the colour the better, on one scale for all panels. "
            f"{_FRAMED if compared else ''}A star ({STAR}) is a collapse, with its round, and worse than any "
            "figure.",
            panels=tuple(panels),
            wide=True,
        )
    ]


def _assumed(drawn: Drawn) -> list[Figure]:
    """A heat map for every defence and attack: what it assumes against what is true."""
    grid = [outcome for outcome in drawn.found if outcome.place.assumed is not None]
    panels = []
    for method in dict.fromkeys(outcome.place.method for outcome in grid):
        for attack in drawn.attacks:
            there = [o for o in _of(grid, method) if o.place.attack in (attack, CLEAN)]
            if not any(o.place.attack == attack for o in there):
                continue
            rows = [
                _row(o) | {"true": percent(o.place.fraction), "assumed": number(o.place.assumed), "is_worst": False}
                for o in there
            ]
            shares = [percent(f) for f in sorted({o.place.fraction for o in there})]
            guesses = [number(f) for f in sorted({o.place.assumed for o in there}, reverse=True)]  # type: ignore[type-var]
            heat = _heat(rows, drawn, x=("true", shares), y=("assumed", guesses))
            panels.append(heat.properties(title=panel_title(f"{method}, {attack}")))
    if not panels:
        return []
    return [
        Figure(
            key="assumed",
            title="Assumed against true attackers",
            caption="How a defence does that takes the share (or the number, of a round) of attackers to be what "
            "stands at the left, where the true share is what stands below. The stronger the colour the better, on "
            "the scale of the other heat map. Below the diagonal it assumes too few.",
            panels=tuple(panels),
            wide=True,
        )
    ]


def _heat(
    rows: Sequence[Mapping[str, Any]], drawn: Drawn, x: tuple[str, list[str]], y: tuple[str, list[str]]
) -> alt.LayerChart:
    titles = {"attack": None, "method": None, "true": "clients that attack", "assumed": "assumed (f)"}
    slant = -25 if x[0] == "attack" and max(map(len, x[1])) > _LONG else 0
    across = alt.X(f"{x[0]}:N", sort=x[1], title=titles[x[0]], axis=alt.Axis(labelAngle=slant, ticks=False))
    down = alt.Y(f"{y[0]}:N", sort=y[1], title=titles[y[0]], axis=alt.Axis(ticks=False, labelLimit=200))
    base = alt.Chart().encode(across, down)
    low, high = drawn.span
    best = [0.05, 0.55] if drawn.higher_is_better else [0.55, 0.05]
    shade = alt.Opacity("mean:Q", scale=alt.Scale(domain=[low, high], range=best), legend=None)
    known = base.transform_filter("isValid(datum.mean)").mark_rect(color=ACCENT).encode(shade)
    edge = base.mark_rect(fillOpacity=0, stroke=FAINT, strokeWidth=1)
    frame = base.transform_filter("datum.is_worst").mark_rect(fillOpacity=0, stroke=INK, strokeWidth=1.5)
    fields = ["method:N", "under:N", alt.Tooltip("text:N", title=f"test {drawn.metric} (variance)")]
    text = base.mark_text(color=INK, fontSize=11).encode(alt.Text("brief:N"), tooltip=fields)
    data = pl.DataFrame(list(rows), infer_schema_length=None)
    layers = [known, edge, *([frame] if any(row["is_worst"] for row in rows) else []), text]
    return layered(*layers, data=data).properties(height=_ROW * max(len(y[1]), 3))


def _row(outcome: Outcome) -> dict[str, Any]:
    place = outcome.place
    numbers = {name: getattr(outcome, name) for name in ("mean", "low", "high")}
    return {
        "method": place.method,
        "attack": place.attack,
        "under": place.attack,
        "fraction": place.fraction,
        "text": outcome.text,
        "brief": outcome.text if outcome.collapsed else short(outcome.mean),
    } | {name: float(f"{value:.5g}") if isfinite(value) else None for name, value in numbers.items()}


def _key(outcome: Outcome) -> tuple[str, float]:
    return outcome.place.method, outcome.place.fraction


def number(f: int | float | None) -> str:
    """What is assumed: a share in per cent, or a number of messages."""
    return percent(f) if isinstance(f, float) else str(f)
