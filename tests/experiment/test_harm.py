"""Who is worse off than alone, or than with the shared model."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

import descant as dc
from descant.cli.tables import comparison_table
from descant.experiment.cells import Cell
from descant.experiment.grid import comparison
from descant.experiment.harm import worse_than_alone
from descant.metrics import share_worse
from descant.report import Report
from descant.report.harm import harmed, newcomers
from descant.report.tables import summary_rows

some = arrays(np.float64, 9, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, float("nan")]))
METHODS = {
    "alone": {"name": "local", "steps": 2},
    "alone longer": {"name": "local", "steps": 7},
    "tied": {"name": "ditto", "steps": 4, "solver": {"name": "fedavg", "steps": 4}},
    "together": {"name": "fedavg", "steps": 2},
}
VALUES: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 12, "samples": 60, "classes": 3, "alpha": 0.5, "beta": 0.5},
    "rounds": 4,
    "seeds": 2,
    "newcomers": 3,
    "newcomer_rounds": 2,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Cell, dc.Run]]:
    return list(comparison(VALUES | {"methods": METHODS}, tmp_path_factory.mktemp("runs")).run())


@given(some, some, st.booleans())
def test_a_client_is_worse_off_by_less_or_by_no_number_at_all(
    ours: np.ndarray, theirs: np.ndarray, higher: bool
) -> None:
    counted = lost = 0
    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
        counted += not (np.isnan(a) and np.isnan(b))
        lost += (np.isnan(a) and not np.isnan(b)) or (a < b if higher else a > b)
    found = share_worse(ours, theirs, higher)
    assert found == lost / counted if counted else np.isnan(found)


def by_client(run: dc.Run, model: str) -> np.ndarray:
    """The test accuracy of those who took part, in the round that validation data chose for the personal model."""
    table = run.clients.filter(run.clients["round"] == run.summary()["personal.round@chosen_on_valid"])
    accuracy = table.filter(table["model"] == model).sort("client")["test_accuracy"].to_numpy()
    return accuracy[run.history.federation.members("all")]


@pytest.mark.slow
def test_alone_is_local_training_with_about_as_many_gradients(results: list[tuple[Cell, dc.Run]]) -> None:
    runs = {label: [run for cell, run in results if cell.label == label] for label in METHODS}
    found = worse_than_alone(runs, "chosen_on_valid")
    assert set(found) == {"tied", "together"}
    for label, alone in (("tied", "alone longer"), ("together", "alone")):
        for seed in range(2):
            ours, theirs = by_client(runs[label][seed], "personal"), by_client(runs[alone][seed], "personal")
            assert found[label][seed] == np.mean(ours < theirs)
    assert any(0 < share < 1 for share in found["together"]), "some lose and some win"
    assert worse_than_alone({"tied": runs["tied"]}, "chosen_on_valid") == {}
    other_seed = {"alone": runs["alone"][:1], "tied": runs["tied"]}
    assert worse_than_alone(other_seed, "chosen_on_valid") == {}, "a seed that has no partner"


@pytest.mark.slow
def test_worse_than_the_shared_model_of_the_same_round(results: list[tuple[Cell, dc.Run]]) -> None:
    for cell, run in results:
        summary = run.summary()
        assert ("personal.worse_than_shared@last" in summary) == (cell.label == "tied")
        if cell.label == "tied":
            share = np.mean(by_client(run, "personal") < by_client(run, "shared"))
            assert summary["personal.worse_than_shared@chosen_on_valid"] == share


@pytest.mark.slow
def test_the_report_and_the_terminal_say_it(results: list[tuple[Cell, dc.Run]]) -> None:
    report = Report([run for _, run in results])
    experiment = report.experiments[0]
    found = summary_rows(experiment)
    table, late = harmed(experiment, found), newcomers(experiment, found)
    assert table is not None and late is not None
    assert [row[0].text for row in table.rows] == ["tied", "together"]
    runs = {label: [run for cell, run in results if cell.label == label] for label in METHODS}
    shares = worse_than_alone(runs, "chosen_on_valid")
    assert [row[1].value for row in table.rows] == [np.mean(shares["tied"]), np.mean(shares["together"])]
    assert table.rows[1][2].text == "–", "FedAvg deploys the shared model"
    assert [row[0].text for row in late.rows] == list(METHODS)
    mean = np.mean([s.summary()["newcomers.personal.test_accuracy.mean@chosen_on_valid"] for s in runs["tied"]])
    assert late.rows[2][1].value == pytest.approx(mean)
    assert "3 who never took part, each after 2 rounds" in late.caption
    page = report.html()
    assert "Who is harmed" in page and "Clients that come later" in page
    console = Console(file=StringIO(), width=250)
    comparison_table(results, console)
    assert "worse than alone" in console.file.getvalue()  # type: ignore[attr-defined]


def together(folder: Path) -> Report:
    """Of one method, without newcomers."""
    values = {name: value for name, value in VALUES.items() if "newcomer" not in name} | {"seeds": 1, "rounds": 1}
    runs = list(comparison(values | {"methods": {"together": METHODS["together"]}}, folder).run())
    return Report([run for _, run in runs])


def test_without_local_training_or_newcomers_there_is_nothing_to_say(tmp_path: Path) -> None:
    report = together(tmp_path)
    found = summary_rows(report.experiments[0])
    assert harmed(report.experiments[0], found) is None and newcomers(report.experiments[0], found) is None


@pytest.mark.slow
def test_nothing_is_said_of_harm_on_a_page_without_it(tmp_path: Path) -> None:
    assert "Who is harmed" not in together(tmp_path).html()


def test_alone_is_only_who_had_the_same_newcomers() -> None:
    """Names do not tell: everyone keeps them, whether it takes part or comes later."""
    data = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
    task, how = dc.Task(dc.models.linear(data)), {"rounds": 1, "mode": "vmap"}
    alone = {late: dc.simulate(task, data, "local", newcomers=late, **how) for late in ((0, 1), (4, 5))}  # type: ignore[arg-type]
    ours = dc.simulate(task, data, "fedavg", newcomers=(0, 1), **how)  # type: ignore[arg-type]
    assert "ours" in worse_than_alone({"alone": [alone[0, 1]], "ours": [ours]}, "last")
    assert worse_than_alone({"alone": [alone[4, 5]], "ours": [ours]}, "last") == {}
    both = {"alone": [alone[4, 5], alone[0, 1]], "ours": [ours]}
    assert worse_than_alone(both, "last") == worse_than_alone({"alone": [alone[0, 1]], "ours": [ours]}, "last")
