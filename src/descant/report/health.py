"""Figures of a federation's health: how far aggregations move the clients' models, and what that does to them."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from descant.experiment.history import History, at_point
from descant.report.figure import HEIGHT, Chart, Figure, Palette, layered, panel_title, scale, widened
from descant.report.gather import Entry, Experiment
from descant.report.series import Floats, rounded, thinned

_LINES = 3  # rounds of an entry whose lines are drawn
_SHADES = (1.0, 0.55, 0.3)  # of the last of them, and of those before


def health_figures(experiment: Experiment, palette: Palette) -> list[Figure]:
    """The jumps over rounds, and the loss on the way to the aggregate; nothing where no run looked at them."""
    jumps, ways = pl.DataFrame(over_rounds(experiment)), pl.DataFrame(along(experiment))
    if jumps.is_empty():
        return []
    part = next(entry.config["health"]["part"] for entry in experiment.entries if _common(entry))
    return [
        Figure(
            key="jump",
            title="Jumps of the clients' models",
            caption="How far an aggregation moves a client's own model: the distance from where its work ended to "
            "where its next work starts. The line is the mean over the clients of a round, and the band one "
            "standard deviation to both sides. Spikes mean that the aggregate tears models away from what they "
            "have learnt (Fed+, Figure 1). A method whose clients go on from their own models has none.",
            panels=(_jumps(jumps, palette),),
        ),
        Figure(
            key="line",
            title=f"{part.capitalize()} loss from the local model to the aggregate",
            caption="The mean loss of clients on the straight way from their local model (0) to the aggregate (1), "
            "after the first, a middle and the last round that was looked at; the later, the darker. A line that "
            "rises says that the full step to the aggregate harms clients. Dashed: what their work of that round "
            "began with. An aggregate above it is worse than the one before (Fed+, Figure 3).",
            panels=tuple(_ways(ways, part, palette)),
            small=True,
            wide=True,
        ),
    ]


def over_rounds(experiment: Experiment) -> list[dict[str, Any]]:
    """One row an entry and round that was looked at: mean and spread of the jumps, mean distance to the aggregate.

    Numbers are of the benign clients, and means over seeds.
    """
    rows = []
    for entry in experiment.entries:
        rounds = _common(entry)
        for t in (rounds[i] for i in thinned(len(rounds), 250)):
            jumps = [_benign(history, t, "jump") for history in entry.histories]
            apart = [_benign(history, t, "distance") for history in entry.histories]
            mean, sd = (float(np.mean([of(jump) for jump in jumps])) for of in (np.mean, np.std))
            figures = {"mean": mean, "low": max(0.0, mean - sd), "high": mean + sd, "spread": sd}
            figures["distance"] = float(np.mean([one.mean() for one in apart]))
            rows.append({"method": entry.label, "round": t} | {name: rounded(v) for name, v in figures.items()})
    return rows


def along(experiment: Experiment) -> list[dict[str, Any]]:
    """One row an entry, round and point of the line: the mean loss there, and that of what the round began with."""
    rows = []
    for entry in experiment.entries:
        rounds = _common(entry)
        shown = sorted({rounds[0], rounds[len(rounds) // 2], rounds[-1]})[-_LINES:] if rounds else []
        for age, t in enumerate(reversed(shown)):
            began = _mean(entry, t, "loss_began")
            rows += [
                {"method": entry.label, "round": t, "shade": _SHADES[age], "theta": theta, "began": began}
                | {"loss": _mean(entry, t, at_point(theta))}
                for theta in entry.config["health"]["points"]
            ]
    return rows


def _common(entry: Entry) -> list[int]:
    """The rounds that every seed of an entry looked at and has benign clients in."""
    found = [{t for t in history.health if len(_benign(history, t, "jump"))} for history in entry.histories]
    return sorted(set.intersection(*found))


def _benign(history: History, round: int, column: str, part: str = "train") -> Floats:
    """A column of the benign clients of a round that have examples of a part."""
    columns, federation = history.health[round], history.federation
    counted = federation.members("benign") & (federation.sizes[part] > 0)
    values: Floats = columns[column][counted[columns["client"]]]
    return values


def _mean(entry: Entry, round: int, column: str) -> float | None:
    """The mean loss over clients, and over seeds."""
    values = [_benign(history, round, column, entry.config["health"]["part"]) for history in entry.histories]
    return rounded(float(np.mean([one.mean() if len(one) else np.nan for one in values])))


def _jumps(frame: pl.DataFrame, palette: Palette) -> Chart:
    labels = frame["method"].unique(maintain_order=True).to_list()
    base = alt.Chart().encode(alt.X("round:Q", axis=alt.Axis(grid=False, format="~s", tickCount=6, tickMinStep=1)))
    y = alt.Y("mean:Q", title="jump (norm)", scale=scale(frame["low"], frame["high"]))
    band = base.mark_area(opacity=0.15).encode(
        alt.Y("low:Q"), alt.Y2("high:Q"), palette.colour(labels, legend=False)
    )
    line = base.mark_line().encode(y, palette.colour(labels), palette.dash(labels))
    tooltip = ["method:N", "round:Q", alt.Tooltip("mean:Q", title="jump"), "spread:Q", "distance:Q"]
    aim = base.mark_point(opacity=0.01, size=120, filled=True).encode(y, tooltip=tooltip)
    return layered(band, line, aim, data=frame).properties(height=HEIGHT)


def _ways(frame: pl.DataFrame, part: str, palette: Palette) -> list[Chart]:
    """One panel an entry, all on the same scale."""
    values = pl.concat([frame["loss"], frame["began"]]).cast(pl.Float64).drop_nulls()
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)  # type: ignore[arg-type]
    same = alt.Scale(domain=widened(low, high), clamp=True)
    y, began = alt.Y("loss:Q", title=f"{part} loss", scale=same), alt.Y("began:Q", scale=same)
    panels: list[Chart] = []
    for (label,), rows in frame.group_by("method", maintain_order=True):
        colour = palette.styles[str(label)].colour
        x = alt.X("theta:Q", title="local (0) to aggregate (1)", axis=alt.Axis(grid=False, values=[0, 0.5, 1]))
        shade = alt.Opacity("shade:Q", scale=None)
        base = alt.Chart().encode(x, detail="round:N")
        layers = [
            base.mark_line(color=colour, clip=True).encode(y, shade),
            base.mark_line(color=colour, strokeDash=[4, 4], strokeWidth=1.2, clip=True).encode(began, shade),
            base.mark_point(opacity=0.01, size=120, filled=True).encode(
                y, tooltip=["method:N", "round:Q", "theta:Q", "loss:Q", "began:Q"]
            ),
        ]
        panels.append(layered(*layers, data=rows).properties(height=150, title=panel_title(str(label))))
    return panels
