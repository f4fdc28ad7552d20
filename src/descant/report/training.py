"""Figures over the course of training: rounds, bytes, gradients."""

from __future__ import annotations

import altair as alt
import polars as pl

from descant.experiment.history import SUCCESS
from descant.experiment.table import short
from descant.report.figure import HEIGHT, Chart, Figure, Palette, layered, panel_title, scale, widened
from descant.report.gather import Experiment
from descant.report.look import INK
from descant.report.series import over_rounds

_NUMBERS = ("mean", "low", "high")


def training_figures(experiment: Experiment, palette: Palette) -> list[Figure]:
    """Metric and loss over rounds and against their cost, then for each entry with the spread over its clients."""
    lines, bands = [], []
    for measure in measures(experiment):
        frame = over_rounds(experiment, measure, experiment.model)
        if frame.is_empty():
            continue
        lines.append(
            Figure(
                key=measure,
                title=f"Test {measure} over rounds",
                caption=f"{_model(experiment)}: test {measure}, mean over clients; shaded, the range over seeds. "
                f"{_better(experiment, measure)} Look for who gets there first, who stays there, and lines that "
                "are closer to each other than their own seeds are."
                f"{_beyond(frame, 'high', 'low', _open(experiment, measure))}",
                panels=(_lines(frame, "round:Q", "round", measure, palette, _open(experiment, measure)),),
            )
        )
        bands.append(
            Figure(
                key=f"{measure}-clients",
                title=f"Test {measure} of the best and worst served",
                caption="The line is the mean over clients; the band reaches from the mean of the worst-served "
                "tenth of the clients to that of the best-served tenth. A narrow band is a fair method; a good "
                f"mean over a wide one leaves somebody behind.{_shared_note(experiment, measure)}"
                f"{_beyond(frame, 'worst', 'worst', _open(experiment, measure))}",
                panels=tuple(_bands(experiment, frame, measure, palette)),
                small=True,
                wide=True,
            )
        )
    return [*lines, *_cost(experiment, palette), *bands]


def _cost(experiment: Experiment, palette: Palette) -> list[Figure]:
    """The metric against what it has cost: bytes on the wire, gradients."""
    metric = experiment.history.metric
    frame = over_rounds(experiment, metric, experiment.model)
    if frame.is_empty():
        return []
    figures = []
    if frame["bytes"].max():
        figures.append(
            Figure(
                key="bytes",
                title=f"Test {metric} against bytes",
                caption="What a client has sent and received so far (mean over clients; log scale) and the mean "
                f"test {metric} it has for that. {_better(experiment, metric)} Further left is cheaper. A method "
                "that sends nothing has no place on a log axis: a dotted line marks where it ends.",
                panels=(_against_bytes(frame, metric, palette),),
            )
        )
    figures.append(
        Figure(
            key="gradients",
            title=f"Test {metric} against gradients",
            caption="Gradients of single examples that a client has computed so far (mean over clients): the fair "
            "axis for methods that do different amounts of work a round. A method is better where its line is "
            "better than another's at the same place, not where it is longer."
            f"{_beyond(frame, 'high', 'low', _open(experiment, metric))}",
            panels=(
                _lines(
                    frame, "gradients:Q", "example gradients a client", metric, palette, _open(experiment, metric)
                ),
            ),
        )
    )
    return figures


def _lines(frame: pl.DataFrame, x: str, title: str, measure: str, palette: Palette, lower: bool) -> Chart:
    labels = frame["method"].unique(maintain_order=True).to_list()
    field = x.split(":")[0]
    data = frame.select("method", field, *_NUMBERS, "end", "aim", *(["round"] if field != "round" else []))
    least = 1 if field == "round" else alt.Undefined  # there is no half round
    base = alt.Chart().encode(
        alt.X(x, title=title, axis=alt.Axis(grid=False, format="~s", tickCount=6, tickMinStep=least))
    )
    found = scale(frame["low"], frame["high"])
    if lower and (most := _edge(frame, "high", "low")) is not None:
        found = alt.Scale(zero=False, domainMax=most, clamp=True)
    y = alt.Y("mean:Q", title=f"test {measure}", scale=found)
    fields = ["method:N", "round:Q", "low:Q", "high:Q"]
    tooltip = [alt.Tooltip("mean:Q", title=f"test {measure}"), *map(alt.Tooltip, fields)]
    band = base.mark_area(opacity=0.15).encode(
        alt.Y("low:Q"), alt.Y2("high:Q"), palette.colour(labels, legend=False)
    )
    line = base.mark_line().encode(y, palette.colour(labels), palette.dash(labels))
    aim = _aim(base).encode(y, tooltip=tooltip)
    return layered(band, line, aim, *_collapse(frame, base, y), data=data).properties(height=HEIGHT)


def _against_bytes(frame: pl.DataFrame, metric: str, palette: Palette) -> Chart:
    labels = frame["method"].unique(maintain_order=True).to_list()
    ends = pl.col("round") == pl.col("round").max().over("method")
    frame = frame.with_columns(silent=ends & (pl.col("bytes") == 0) & (pl.col("round") > 0))
    data = frame.select("method", "round", "bytes", "silent", *_NUMBERS, "end", "aim")
    y = alt.Y("mean:Q", title=f"test {metric}", scale=scale(frame["mean"]))
    axis = alt.Axis(grid=False, format="~s", tickCount=5)
    x = alt.X("bytes:Q", title="bytes a client, up and down", scale=alt.Scale(type="log"), axis=axis)
    value = alt.Tooltip("mean:Q", title=f"test {metric}")
    tooltip = [alt.Tooltip("method:N"), alt.Tooltip("round:Q"), value, alt.Tooltip("bytes:Q", format=",")]
    sent = alt.Chart().transform_filter("datum.bytes > 0")
    line = sent.mark_line().encode(x, y, palette.colour(labels), palette.dash(labels))
    aim = _aim(sent).encode(x, y, tooltip=tooltip)
    silent = alt.Chart().transform_filter("datum.silent")
    rule = silent.mark_rule(strokeDash=[2, 4], strokeWidth=2).encode(
        y, palette.colour(labels, legend=False), tooltip=["method:N", value]
    )
    sending = frame.filter(pl.col("bytes") > 0)
    layers = [line, aim, *_collapse(sending, sent.encode(x), y)]
    layers += [rule] if frame["silent"].any() else []
    return layered(*layers, data=data).properties(height=HEIGHT)


def _bands(experiment: Experiment, frame: pl.DataFrame, measure: str, palette: Palette) -> list[Chart]:
    """One panel an entry, all on the same scale."""
    low, high = _range(frame, _open(experiment, measure))
    same = alt.Scale(domain=widened(low, high), clamp=True)
    y, mean = alt.Y("worst:Q", title=f"test {measure}", scale=same), alt.Y("mean:Q", scale=same)
    tooltip = ["method:N", "model:N", "round:Q", "worst:Q", "mean:Q", "best:Q"]
    shared = over_rounds(experiment, measure, "shared") if experiment.model != "shared" else pl.DataFrame()
    panels: list[Chart] = []
    for (label,), rows in frame.group_by("method", maintain_order=True):
        rows = rows.with_columns(model=pl.lit("personal"))
        beside = shared.filter(pl.col("method") == label) if not shared.is_empty() else shared
        if not beside.is_empty():
            rows = pl.concat([rows, beside.with_columns(model=pl.lit("shared"))])
        data = rows.select("method", "model", "round", "mean", "worst", "best", "end", "aim")
        base = alt.Chart().encode(alt.X("round:Q", axis=alt.Axis(grid=False, tickCount=4, tickMinStep=1)))
        own = base.transform_filter("datum.model == 'personal'")
        other = base.transform_filter("datum.model == 'shared'")
        colour = palette.styles[str(label)].colour
        layers = [
            own.mark_area(opacity=0.22, color=colour, clip=True).encode(y, alt.Y2("best:Q")),
            own.mark_line(color=colour, clip=True).encode(mean),
            _aim(base).encode(mean, tooltip=tooltip),
        ]
        if not beside.is_empty():
            dotted = other.mark_line(color=INK, strokeDash=[3, 3], strokeWidth=1.5, clip=True)
            layers.append(dotted.encode(mean))
        layers += _collapse(rows, own, mean)
        panels.append(layered(*layers, data=data).properties(height=150, title=panel_title(str(label))))
    return panels


def _range(frame: pl.DataFrame, lower: bool) -> tuple[float, float]:
    """From the worst to the best tenth of any entry; one that diverges must not flatten all others."""
    numbers = pl.concat([frame["worst"], frame["best"]]).drop_nulls().to_numpy()
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    edge = _edge(frame, "worst", "worst") if lower else None
    return low, high if edge is None else edge


def _edge(frame: pl.DataFrame, drawn: str, first: str) -> float | None:
    """Where the chart of a loss ends, if something that is drawn lies beyond; None where all of it fits."""
    most = _diverged(frame[first], frame["round"])
    return most if (frame[drawn] > most).any() else None


def _beyond(frame: pl.DataFrame, drawn: str, first: str, lower: bool) -> str:
    """Who has left the chart of a loss, and how far: a line along its upper edge is no plateau."""
    edge = _edge(frame, drawn, first) if lower else None
    if edge is None:
        return ""
    gone = frame.filter(pl.col(drawn) > edge).group_by("method", maintain_order=True).agg(pl.col(drawn).max())
    told = ", ".join(f"{row['method']} (up to {short(row[drawn])})" for row in gone.iter_rows(named=True))
    return f" The axis ends at {short(edge)}; what is larger is drawn along its upper edge: {told}."


def _diverged(values: pl.Series, rounds: pl.Series) -> float:
    """From where on a loss is off the chart: four times that of the first evaluation, mostly before training."""
    first = values.filter(rounds == rounds.min()).drop_nulls().to_numpy()
    return 4 * float(first.max()) if len(first) and first.max() > 0 else float("inf")


def _aim(base: alt.Chart) -> alt.Chart:
    """Invisible points along a line: what a pointer hits."""
    points: alt.Chart = base.transform_filter("datum.aim").mark_point(size=120, opacity=0)
    return points


def _collapse(frame: pl.DataFrame, base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
    """A cross where the first seed of an entry collapses."""
    if not frame["end"].any():
        return []
    tooltip = [alt.Tooltip("method:N"), alt.Tooltip("round:Q", title="collapsed after")]
    text = base.transform_filter("datum.end").mark_text(text="✕", fontSize=16, fontWeight="bold", color=INK)
    return [text.encode(y, tooltip=tooltip)]


def measures(experiment: Experiment) -> list[str]:
    """The metric and the loss, where they are not the same, and how often a backdoor works, where there is one."""
    task, metric = experiment.entries[0].config.get("task", {}), experiment.history.metric
    found = [metric] if metric in ("loss", task.get("loss")) else [metric, "loss"]
    probed = any(f"test_{SUCCESS}" in h.columns(experiment.model) for e in experiment.entries for h in e.histories)
    return [*found, SUCCESS] if probed else found


def _model(experiment: Experiment) -> str:
    return "What clients deploy" if experiment.model == "personal" else "The shared model"


def _better(experiment: Experiment, measure: str) -> str:
    return "Lower is better." if _lower(experiment, measure) else "Higher is better."


def _lower(experiment: Experiment, measure: str) -> bool:
    return measure in ("loss", SUCCESS) or not experiment.history.higher_is_better


def _open(experiment: Experiment, measure: str) -> bool:
    """Whether a measure has no upper end, so that one line that diverges would flatten all others."""
    return measure != SUCCESS and _lower(experiment, measure)


def _shared_note(experiment: Experiment, measure: str) -> str:
    if experiment.model == "shared" or over_rounds(experiment, measure, "shared").is_empty():
        return ""
    return " Dotted: the shared model, where a method has one beside the personal ones."
