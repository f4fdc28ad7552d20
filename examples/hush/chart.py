"""Test accuracy against bytes, a point a method: a chart of a comparison, as an SVG.

    descant compare examples/hush.yaml
    python examples/hush/chart.py runs/hush docs/images/hush-digits.svg
    python examples/hush/chart.py runs/mnist-20 some.svg "MNIST by writer" Local Ditto "Hush 1/27, 3 bits"

Accuracies are those of table.py: of the clients' own models, in the round chosen on validation data. A point is the
mean over clients and seeds, with its 95 % interval over seeds (Student's t; none with one seed). Bytes are those of
all clients and rounds, up and down, on a log axis. Of methods with the same bytes the first has its place, and the
others stand to its right. A method that sends nothing is a dotted line. A thin line joins Hush with several `m` and
the same bits. Behind the title, the methods to draw can be named. An axis of accuracy ends at 0 and 1, where longer
intervals are cut off. Runs that differ in their data, model, rounds, cohort or attacks are refused.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import altair as alt
import polars as pl
import vl_convert
from finished import check_alike, finished

import descant as dc
from descant.errors import SettingError
from descant.experiment.namesakes import key_of
from descant.report.figure import Figure, Palette, layered, scale, span
from descant.report.look import styles
from descant.report.place import check_picture, write_marked
from descant.report.verdict import paired

APART = 9  # pixels between methods with the same bytes


def points(compared: dc.Comparison, metric: str) -> pl.DataFrame:
    """One row a method: bytes in all, and the mean of the test metric with its interval."""
    spent = {row["method"]: row["bytes_up"] + row["bytes_down"] for row in compared.table().iter_rows(named=True)}
    rows = []
    for label, runs in compared.runs.items():
        name = f"personal.test_{metric}.mean@chosen_on_valid"
        by_seed = {key_of(run): run.summary().get(name, float("nan")) for run in runs}
        found = paired(by_seed, dict.fromkeys(by_seed, 0.0))  # the mean, as a difference from nothing
        if found is None:
            print(f"# {label} has no figure: every seed collapsed", file=sys.stderr)
            continue
        low, high = (found.low, found.high) if found.seeds > 1 else (found.mean, found.mean)
        joined = re.fullmatch(r"Hush 1/\d+((, \d bits?)?)", label)
        row = {"method": label, "bytes": spent[label], "mean": found.mean, "low": low, "high": high}
        rows.append(row | {"joined": None if joined is None else f"Hush{joined[1]}"})
    if not rows:
        return pl.DataFrame()
    aside = pl.int_range(pl.len()).over("bytes")
    return pl.DataFrame(rows).sort("bytes", descending=True, maintain_order=True).with_columns(aside=aside)


def within(frame: pl.DataFrame, metric: str) -> alt.Scale:
    """The scale of the metric. An interval beyond all accuracies, as two seeds have, would leave points no room."""
    found = span(frame["low"], frame["high"])
    if metric != "accuracy" or found is None or (found[0] >= 0 and found[1] <= 1):
        return scale(frame["low"], frame["high"])
    return alt.Scale(domain=[max(found[0], 0.0), min(found[1], 1.0)], nice=True, clamp=True)


def figure(frame: pl.DataFrame, metric: str, title: str) -> Figure:
    labels = frame["method"].to_list()
    palette, colour = Palette(styles(labels)), Palette(styles(labels)).colour(labels)
    axis = alt.Axis(grid=False, format="~s", tickCount=6)
    x = alt.X("bytes:Q", title="bytes of all clients, up and down", scale=alt.Scale(type="log"), axis=axis)
    y = alt.Y("mean:Q", title=f"test {metric}", scale=within(frame, metric))
    heard = alt.Chart().transform_filter("datum.bytes > 0").encode(x)
    joined = heard.transform_filter("datum.joined !== null").mark_line(color="#7A7A7A", strokeWidth=1)
    layers = [joined.encode(y, detail="joined:N")]
    for aside in sorted(set(frame["aside"])):
        those = heard.transform_filter(f"datum.aside == {aside}")
        reach = those.mark_rule(strokeWidth=2, xOffset=APART * aside)
        point = those.mark_point(xOffset=APART * aside)
        layers.append(reach.encode(alt.Y("low:Q"), alt.Y2("high:Q"), colour))
        layers.append(point.encode(y, colour, palette.shape(labels)))
    silent = alt.Chart().transform_filter("datum.bytes == 0").mark_rule(strokeDash=[2, 4], strokeWidth=2)
    layers += [silent.encode(y, colour)] if (frame["bytes"] == 0).any() else []
    return Figure("bytes", title, "", (layered(*layers, data=frame).properties(height=300),))


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    folder, path = map(Path, sys.argv[1:3])
    if path.suffix != ".svg":
        raise SystemExit(f"{path}: the chart is an SVG, call it {path.with_suffix('.svg')}")
    check_picture(path)  # before anything is drawn
    runs = finished(folder)
    metric, labels = runs[0].history.metric, [str(run.config["label"]) for run in runs]
    if unknown := [label for label in sys.argv[4:] if label not in labels]:
        raise SystemExit(f"no run in {folder} is called {unknown[0]!r}: there are {', '.join(sorted(set(labels)))}")
    runs = [run for run, label in zip(runs, labels, strict=True) if label in (sys.argv[4:] or labels)]
    check_alike(runs, folder)
    title = sys.argv[3] if len(sys.argv) > 3 else f"Test {metric} against bytes: {runs[0].config['data']['name']}"
    frame = points(dc.Comparison(runs), metric)
    if frame.is_empty():
        raise SystemExit(f"every run in {folder} collapsed: there is nothing to draw")
    drawn = figure(frame, metric, title).chart.to_dict()
    drawn["config"]["legend"]["columnPadding"] = 40  # fonts of other machines are wider
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    text = vl_convert.vegalite_to_svg(drawn, vl_version=version)
    write_marked(path, text)


if __name__ == "__main__":
    try:
        main()
    except (OSError, SettingError) as error:
        raise SystemExit(str(error)) from error
