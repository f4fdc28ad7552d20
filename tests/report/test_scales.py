"""Axes and numbers: a single value is said as it is, what leaves a chart is said, and 1.4e20 is 1.4e20."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from descant.experiment import Run
from descant.experiment.table import short
from descant.report import Report
from descant.report.figure import scale
from descant.report.gather import find
from descant.report.tables import overview, summary_rows, worst_served


def changed(run: Run, model: str, round: int, column: str, value: float) -> Run:
    history = copy.deepcopy(run.history)
    values = history.evaluated[model][round][column]
    history.evaluated[model][round][column] = np.full_like(values, value)
    return Run(run.config, history)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return Run.load(find([folder])[0])


def test_an_axis_with_one_value_has_room_for_ticks_that_say_it(run: Run) -> None:
    flat = run
    for t in run.history.evaluated["personal"]:
        flat = changed(flat, "personal", t, "test_accuracy", 0.966)
    drawn = Report([flat]).plot("accuracy").to_dict()
    [panel] = drawn["concat"]
    domains = [
        layer["encoding"]["y"]["scale"]["domain"] for layer in panel["layer"] if "scale" in layer["encoding"]["y"]
    ]
    assert domains and all(low < 0.966 < high for low, high in domains)
    assert scale(pl.Series([0.5, 0.9])).to_dict() == {"zero": False}


def test_a_loss_that_leaves_the_chart_is_said_in_its_caption(run: Run) -> None:
    wild = changed(run, "personal", 4, "test_loss", 1.4e20)
    figures = {figure.key: figure for figure in Report([wild]).figures["synthetic"]}
    for key in ("loss", "loss-clients"):
        assert "drawn along its upper edge: alone (up to 1.4e20)" in figures[key].caption, key
    calm = {figure.key: figure for figure in Report([run]).figures["synthetic"]}
    assert not any("upper edge" in figure.caption for figure in calm.values())


def test_a_huge_number_is_a_power_in_every_table(run: Run) -> None:
    wild = run
    for t in run.history.evaluated["personal"]:
        for part in ("train", "test"):
            wild = changed(wild, "personal", t, f"{part}_loss", 1.4e20)
        wild = changed(wild, "personal", t, "test_accuracy", 1.4e20)
    [experiment] = Report([wild]).experiments
    table = overview(experiment, summary_rows(experiment), "last", full=True)
    cells = [cell.text for row in (*table.rows, *worst_served(experiment).rows) for cell in row]
    assert "1.4e20" in cells and max(map(len, cells)) < 40


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9664, "0.966"),
        (0.00123, "0.00123"),
        (1.4e20, "1.4e20"),
        (123.4, "123"),
        (1e5, "100,000"),
        (float("nan"), "–"),
    ],
)
def test_numbers_as_people_write_them(value: float, text: str) -> None:
    assert short(value) == text


def test_rounds_have_whole_ticks(run: Run) -> None:
    [panel] = Report([run]).plot("accuracy").to_dict()["concat"]
    axes = [layer["encoding"]["x"]["axis"] for layer in panel["layer"]]
    assert axes and all(axis["tickMinStep"] == 1 for axis in axes)
