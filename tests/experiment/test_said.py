"""Small mistakes and corner cases, and what is said of them."""

from __future__ import annotations

import json
from functools import cache
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import descant as dc
from descant.cli.tables import print_run
from descant.errors import SettingError
from descant.experiment.identity import of_problem
from descant.task import Metric

DATA = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
HOW: dict[str, Any] = {"rounds": 1, "mode": "vmap"}


@cache
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(nn.Linear(4, 3))


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_a_personal_model_is_somebodys(method: str) -> None:
    run = dc.simulate(task(), DATA, method, **HOW)
    with pytest.raises(SettingError, match=r"client = None: say whose personal model.*run\.personal\('0'\)"):
        run.personal(None)  # type: ignore[arg-type]


def test_one_newcomer_under_two_names_is_refused() -> None:
    with pytest.raises(SettingError, match="newcomers: 1 and '1' are the same client: name it once"):
        dc.simulate(task(), DATA, "fedavg", newcomers=[1, "1"], **HOW)


@pytest.mark.parametrize("newcomers", [None, 0, 0.0, ()])
def test_rounds_of_newcomers_need_newcomers(newcomers: Any) -> None:
    with pytest.raises(SettingError, match=r"newcomer_rounds = 3: it must be 1, its default, where there are no"):
        dc.simulate(task(), DATA, "fedavg", newcomers=newcomers, newcomer_rounds=3, **HOW)
    assert dc.simulate(task(), DATA, "fedavg", newcomers=newcomers, newcomer_rounds=1, **HOW).collapse is None


def test_a_run_of_the_command_line_shows_its_newcomers() -> None:
    run = dc.simulate(task(), DATA, "fedavg", newcomers=2, **HOW)
    out = StringIO()
    print_run(run, Console(file=out, width=200))
    [line] = [line for line in out.getvalue().splitlines() if "newcomers, personal, last" in line]
    assert f"{run.summary()['newcomers.personal.test_accuracy.mean@last']:.4f}" in line
    without = StringIO()
    print_run(dc.simulate(task(), DATA, "fedavg", **HOW), Console(file=without, width=200))
    assert "newcomers" not in without.getvalue()


def test_a_metric_that_is_defined_for_nobody_says_so() -> None:
    """Every client holds one class: an area under a curve has no meaning, and no round can be chosen by it."""
    rows = [(torch.randn(12, 3), torch.full((12,), k % 2)) for k in range(4)]
    data = dc.FederatedData.from_arrays(rows, classes=2)
    run = dc.simulate(dc.Task(nn.Linear(3, 2), metric="auc"), data, "fedavg", **HOW)
    with pytest.raises(KeyError, match=r"the metric 'auc' has no value on valid data .* of no client define it"):
        run.summary()["personal.test_auc.mean@chosen_on_valid"]
    assert json.loads(json.dumps(run.summary()["personal.test_loss.mean@last"])) > 0


def test_a_figure_that_is_not_there_gets_the_nearest_or_the_reason() -> None:
    figures = dc.simulate(task(), DATA, "fedavg", **HOW).summary()
    with pytest.raises(KeyError, match=r"did you mean 'personal\.test_accuracy\.mean@last'"):
        figures["personal.test_acuracy.mean@last"]
    rows = {"train": DATA.train.client(0), "test": DATA.test.client(0)}
    alone = dc.FederatedData.from_arrays([rows], classes=3)
    with pytest.raises(KeyError, match="no client has valid examples to choose a round by"):
        dc.simulate(task(), alone, "fedavg", **HOW).summary()["personal.test_loss.mean@chosen_on_valid"]


def test_what_a_metric_is_computed_from_tells_it_from_others() -> None:
    def of(*given: Any) -> Any:
        return given[0]

    prints = {
        over: of_problem(dc.Task(nn.Linear(4, 3), metric=Metric("own", of, True, over)), DATA)["metric"]
        for over in ("examples", "counts", "outputs")
    }
    assert len(set(prints.values())) == 3


def test_a_row_of_one_aggregator_is_that_aggregator() -> None:
    """So a method that combines by itself takes a row with the mean alone, as it takes the mean."""
    run = dc.simulate(task(), DATA, "fedamp", aggregator=["mean"], **HOW)
    assert run.config["aggregator"] == {"name": "mean"}
