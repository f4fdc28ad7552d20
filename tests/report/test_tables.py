"""Tables and what they must not hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.report import Report
from descant.report.page import facts
from descant.report.tables import all_figures, differences, notices, overview, summary_rows, worst_served


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return Report.of(folder)


def test_every_figure_of_every_run_is_in_the_full_table(report: Report) -> None:
    experiment = report.experiments[0]
    table = all_figures(summary_rows(experiment))
    named = {row[0].text: row[1:] for row in table.rows}
    for column, entry in enumerate(experiment.entries):
        summaries = [run.summary() for run in entry.runs]
        for name, value in summaries[0].items():
            if isinstance(value, float) and name not in ("seconds",):
                wanted = np.mean([summary[name] for summary in summaries])
                assert named[name][column].value == pytest.approx(wanted), name


def test_the_overview_has_a_row_a_method_for_each_named_round(report: Report, labels: list[str]) -> None:
    experiment = report.experiments[0]
    found = summary_rows(experiment)
    for rule in ("last", "chosen_on_valid", "best_on_test"):
        table = overview(experiment, found, rule)
        assert [row[0].value for row in table.rows] == labels
        column = table.columns.index("test accuracy")
        wanted = [row.mean[f"personal.test_accuracy.mean@{rule}"] for row in found]
        assert [row[column].value for row in table.rows] == wanted
        assert ("looks at the test data" in table.caption) == (rule == "best_on_test")


def test_unequal_compute_and_bytes_are_said(report: Report, labels: list[str]) -> None:
    experiment = report.experiments[0]
    said = "\n".join(notices(experiment, summary_rows(experiment)))
    assert "Not at equal compute" in said and "alone" in said.split("Not at equal bytes")[0]
    assert "Not at equal bytes: a client sends and receives 0 B (alone)" in said
    assert "seeds" not in said and "collapsed" not in said


def test_equal_budgets_are_not_complained_about(report: Report) -> None:
    experiment = report.experiments[0]
    alike = Report([*experiment.entries[2].runs], title="one method").experiments[0]
    assert notices(alike, summary_rows(alike)) == []


def test_a_collapse_is_said_and_marked(collapsed: Path) -> None:
    experiment = Report.of(collapsed).experiments[0]
    found = summary_rows(experiment)
    said = "\n".join(notices(experiment, found))
    assert "wild, seed 0, collapsed in round" in said and "One seed" in said
    assert [row[0].text for row in overview(experiment, found, "last").rows] == ["calm", "wild (collapsed: 1 of 1)"]
    last = overview(experiment, found, "last")
    assert last.rows[1][last.columns.index("test accuracy")].text == "–", "a collapsed run has no last model"


def test_the_worst_served_are_named_with_what_they_hold(report: Report) -> None:
    experiment = report.experiments[0]
    table = worst_served(experiment)
    assert len(table.rows) == 3 * 5
    entry = experiment.entries[0]
    rounds = [history.best_round("personal", "valid", 0) for history in entry.histories]
    values = np.mean(
        [h.evaluated["personal"][t]["test_accuracy"] for h, t in zip(entry.histories, rounds, strict=True)], axis=0
    )
    assert table.rows[0][2].value == values.min()
    worst = experiment.history.federation.names.index(table.rows[0][1].text)
    assert values[worst] == values.min()
    assert table.rows[0][3].value == experiment.history.federation.sizes["train"][worst]


def test_settings_that_differ_are_listed_and_others_are_not(report: Report) -> None:
    names = [row[0].text for row in differences(report.experiments[0]).rows]
    assert "method" in names and "method.steps" in names
    assert not {"rounds", "seed", "cohort", "data.clients"} & set(names)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {
                "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5, "overlap": False},
                "valid": 0.2,
                "seed": 0,
            },
            "8 clients (partition dirichlet (alpha 0.5, overlap false), valid 0.2);",
        ),
        ({"partition": {"name": "iid", "clients": 8}, "least": None}, "8 clients (partition iid);"),
        ({"parts": ["a", {"name": "b", "x": True}]}, "8 clients (parts [a, b (x true)]);"),
        ({}, "8 clients;"),
    ],
)
def test_data_are_told_as_a_settings_file_writes_them(settings: dict[str, Any], told: str) -> None:
    task = {"parameters": 5, "loss": "cross_entropy", "metric": "accuracy"}
    assert facts({"data": {"clients": 8, "settings": settings}, "task": task}).startswith(told)
    without = facts({"data": {"clients": 8, "settings": settings}})  # of a run whose task nobody wrote down
    assert without == told.replace(";", ".")
