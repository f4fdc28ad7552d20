"""Figures across clients: how evenly they are served, by which model, and who holds what."""

from __future__ import annotations

import altair as alt
import polars as pl

from descant.experiment import Federation
from descant.report.figure import HEIGHT, Chart, Figure, Palette, layered, panel_title, scale, widened
from descant.report.gather import Experiment
from descant.report.look import ACCENT, INK
from descant.report.series import MOST_CLIENTS, both_models, chosen, drawn_clients, holdings, sorted_clients

_RULES = {"last": "the last round", "chosen_on_valid": "the round chosen on validation data"}


def fairness_figures(experiment: Experiment, palette: Palette) -> list[Figure]:
    """How good against how even: the papers' fairness plot, and all clients from worst to best."""
    metric, frame = experiment.history.metric, chosen(experiment)
    aims = {
        "variance": f"variance of test {metric} across clients",
        "loss_variance": "variance of test loss across clients",
    }
    if metric == "loss":
        del aims["loss_variance"]
    panels = [
        _fairness(frame.drop_nulls(["metric", field]), field, title, metric, palette)
        for field, title in aims.items()
        if not frame.drop_nulls(["metric", field]).is_empty()
    ]
    corner = "up" if experiment.history.higher_is_better else "down"
    found = []
    if panels:
        found.append(
            Figure(
                key="fairness",
                title=f"Fairness: test {metric} against its variance",
                caption=f"At {_RULES[experiment.rule]}; one point a method, the range over seeds a cross. Better "
                f"is {corner} and to the left: good on average, and even across clients. Variance of {metric} is "
                "what the papers' tables print, variance of loss what their figures draw; they need not agree.",
                panels=tuple(panels),
                wide=True,
            )
        )
    ordered = sorted_clients(experiment)
    if not ordered.is_empty():
        found.append(
            Figure(
                key="spread",
                title=f"Every client's test {metric}, worst first",
                caption=f"Clients in order, at {_RULES[experiment.rule]} (each seed is ordered by itself, then the "
                "mean is taken). The left end is who is served worst; a method is fair where its line is flat, and "
                f"good where it is {'high' if experiment.history.higher_is_better else 'low'}.",
                panels=(_sorted(ordered, metric, palette),),
                wide=True,
            )
        )
    return found


def models_figure(experiment: Experiment, palette: Palette) -> list[Figure]:
    """Personal against shared model, a point a client."""
    metric, panels = experiment.history.metric, []
    for entry in experiment.entries:
        frame = both_models(entry, experiment)
        if not frame.is_empty():
            panels.append(_diagonal(frame, metric, palette.styles[entry.label].colour, entry.label))
    if not panels:
        return []
    side = "Above" if experiment.history.higher_is_better else "Below"
    return [
        Figure(
            key="models",
            title="Personal against shared model",
            caption=f"One point a client, at {_RULES[experiment.rule]} (mean over seeds, or the first seed "
            f"where each has its own clients). {side} the diagonal the client's own model serves it better than "
            "the shared one: personalization has paid."
            f"{_thinned(experiment.history.federation, MOST_CLIENTS)}",
            panels=tuple(panels),
            small=True,
            wide=True,
        )
    ]


def holdings_figure(federation: Federation, whose: str = "") -> list[Figure]:
    """Who holds what: labels by client, sizes; `whose` goes into the caption."""
    labels, sizes = holdings(federation)
    order = sizes["client"].unique(maintain_order=True).to_list()
    axis = alt.Axis(labels=len(order) <= 40, ticks=False, labelOverlap=True, labelAngle=0)
    x = alt.X("client:N", sort=order, axis=axis, title=f"client ({len(federation.names)} in all)")
    panels: list[Chart] = []
    if not labels.is_empty():
        panels.append(
            alt.Chart(labels, title="labels of the training data")
            .mark_rect(color=ACCENT)
            .encode(
                x,
                alt.Y("label:O", title="label", axis=alt.Axis(labelOverlap=True)),
                alt.Opacity(
                    "share:Q",
                    title="share of the client's examples",
                    scale=alt.Scale(domain=[0, 1], range=[0.08, 1]),
                ),
                tooltip=["client:N", "label:O", "examples:Q", alt.Tooltip("share:Q", format=".0%")],
            )
            .properties(height=HEIGHT)
        )
    parts = alt.Scale(domain=["train", "valid", "test"], range=[1.0, 0.6, 0.3])
    panels.append(
        alt.Chart(sizes, title="examples by part")
        .mark_bar(color=ACCENT)
        .encode(
            x,
            alt.Y("sum(examples):Q", title="examples"),
            alt.Opacity("part:O", scale=parts, title="part"),
            alt.Order("place:Q"),
            tooltip=["client:N", "part:N", "examples:Q"],
        )
        .properties(height=HEIGHT)
    )
    return [
        Figure(
            key="holdings",
            title="Who holds what",
            caption="The training labels of every client, darker where they are a larger share of what it holds, "
            f"and how many examples it has to train, validate and test on (dark to light){whose}. Few "
            "dark cells a column are a skewed federation; short columns are clients whose figures are noisy."
            f"{_thinned(federation, drawn_clients(federation))}",
            panels=tuple(panels),
            wide=True,
        )
    ]


def _fairness(frame: pl.DataFrame, field: str, title: str, metric: str, palette: Palette) -> Chart:
    points = frame.group_by("method", maintain_order=True).agg(
        x=pl.col(field).mean(),
        x_low=pl.col(field).min(),
        x_high=pl.col(field).max(),
        y=pl.col("metric").mean(),
        y_low=pl.col("metric").min(),
        y_high=pl.col("metric").max(),
    )
    labels = points["method"].to_list()
    x = alt.X("x:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    y = alt.Y("y:Q", title=f"test {metric}", scale=scale(points["y_low"], points["y_high"], padding=12))
    colour = palette.colour(labels, legend=False)
    base = alt.Chart()
    wide = base.mark_rule(opacity=0.6).encode(alt.X("x_low:Q"), y, colour, alt.X2("x_high:Q"))
    tall = base.mark_rule(opacity=0.6).encode(x, alt.Y("y_low:Q"), colour, alt.Y2("y_high:Q"))
    tooltip = ["method:N", alt.Tooltip("y:Q", title=f"test {metric}"), alt.Tooltip("x:Q", title=title)]
    marks = base.mark_point().encode(x, y, palette.colour(labels), palette.shape(labels), tooltip=tooltip)
    return layered(wide, tall, marks, data=points).properties(height=HEIGHT)


def _sorted(frame: pl.DataFrame, metric: str, palette: Palette) -> Chart:
    labels = frame["method"].unique(maintain_order=True).to_list()
    axis = alt.Axis(grid=False, values=[0, 25, 50, 75, 100], labelExpr="datum.label + ' %'")
    tooltip = [
        "method:N",
        alt.Tooltip("share:Q", title="per cent of clients"),
        alt.Tooltip("value:Q", title=metric),
    ]
    chart: Chart = (
        alt.Chart(frame)
        .mark_line()
        .encode(
            alt.X("share:Q", title="clients, worst served first", axis=axis),
            alt.Y("value:Q", title=f"test {metric}", scale=scale(frame["value"])),
            palette.colour(labels),
            palette.dash(labels),
            tooltip=tooltip,
        )
        .properties(height=HEIGHT)
    )
    return chart


def _diagonal(frame: pl.DataFrame, metric: str, colour: str, label: str) -> Chart:
    numbers = pl.concat([frame["personal"], frame["shared"]])
    low, high = widened(float(numbers.min()), float(numbers.max()))  # type: ignore[arg-type]
    both = alt.Scale(domain=[low, high], padding=6)
    x = alt.X("shared:Q", title=f"shared model, test {metric}", scale=both, axis=alt.Axis(tickCount=4))
    y = alt.Y("personal:Q", title="personal model", scale=both, axis=alt.Axis(tickCount=4))
    ends = [{"shared": low, "personal": low, "method": label}, {"shared": high, "personal": high, "method": label}]
    line = alt.Chart(pl.DataFrame(ends)).mark_line(color=INK, strokeDash=[3, 3], strokeWidth=1).encode(x, y)
    points = (
        alt.Chart(frame)
        .mark_circle(color=colour, size=30, opacity=0.55)
        .encode(x, y, tooltip=["client:N", "personal:Q", "shared:Q"])
    )
    return layered(line, points).properties(height=200, title=panel_title(label))


def _thinned(federation: Federation, most: int) -> str:
    count = len(federation.names)
    return f" {most} of {count:,} clients are drawn." if count > most else ""
