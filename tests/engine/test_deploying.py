"""Gradients that clients take to make the models that are evaluated: on no bill, and counted apart."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import descant as dc
from descant.cli.tables import print_run
from descant.experiment.frames import fill
from descant.experiment.history import AT_EVALUATION, History
from descant.methods import EWC, SKL, FedALA, FedAvg, FineTune, Method, PerFedAvg
from descant.report import Report
from descant.report.tables import notices, summary_rows

AVG = FedAvg(steps=2, batch=4)
TUNED: dict[str, Any] = {"solver": AVG, "steps": 3, "batch": None}
SIZES = (3, 1, 5, 2, 4, 6, 3)


def run(task: dc.Task, data: dc.FederatedData, method: Method, **settings: Any) -> dc.Run:
    return dc.simulate(task, data, method, **{"rounds": 2, "mode": "vmap", "keep_models": "none"} | settings)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        (AVG, lambda n: 0),
        (FineTune(**TUNED), lambda n: 3),
        (FineTune(**TUNED | {"steps": 0}), lambda n: 0),
        (FineTune(**TUNED, after=1), lambda n: 0),
        (EWC(**TUNED), lambda n: n + 3),  # one gradient an example for F
        (SKL(**TUNED), lambda n: 6),  # two gradients a step
        (PerFedAvg(steps=2, batch=4, adapt=2), lambda n: 2),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else "",
)
def test_every_evaluation_counts_what_its_models_took(
    task: dc.Task, data: dc.FederatedData, method: Method, steps: Any
) -> None:
    done = run(task, data, method)
    sizes = data.train.sizes.tolist()
    for round in range(3):
        spent = done.history.spent[round]
        assert spent["evaluation_gradients"].tolist() == [steps(n) for n in sizes], f"round {round}"
    figures = done.summary()
    expected = sum(steps(n) for n in sizes) / len(sizes)
    assert figures["evaluation_gradients_per_client"] == pytest.approx(expected)
    again = run(task, data, method, evaluate=2)
    assert again.summary()["gradients_per_client"] == figures["gradients_per_client"], "the bill is what it was"


def test_examples_are_counted_too(task: dc.Task, data: dc.FederatedData) -> None:
    spent = run(task, data, FineTune(**TUNED)).history.spent[2]
    assert spent["evaluation_examples"].tolist() == [3 * n for n in data.train.sizes.tolist()]


@pytest.mark.slow
def test_chunks_and_a_folder_change_nothing(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    whole = run(task, data, FedALA(steps=2, batch=4))
    parts = run(task, data, FedALA(steps=2, batch=4), chunk=2, out=tmp_path / "run")
    assert whole.clients["evaluation_gradients"].sum() > 0
    for other in (parts, dc.load(tmp_path / "run")):
        for name in AT_EVALUATION:
            assert other.clients[name].equals(whole.clients[name])
            assert other.summary()[f"{name}_per_client"] == whole.summary()[f"{name}_per_client"]


def test_newcomers_count_apart_from_their_first_rounds(task: dc.Task, data: dc.FederatedData) -> None:
    done = run(task, data, FineTune(**TUNED), newcomers=[1, 4])
    spent = done.history.spent[2]
    assert spent["evaluation_gradients"].tolist() == [3] * 7
    assert spent["gradients"][[1, 4]].tolist() == [2, 2], "a round of FedAvg, as they arrive"


def test_a_run_that_did_not_count_them_is_still_read(task: dc.Task, data: dc.FederatedData) -> None:
    done = run(task, data, FineTune(**TUNED))
    old = History("accuracy", True, done.history.federation)
    fill(old, done.rounds, done.clients.drop(AT_EVALUATION))
    assert "evaluation_gradients_per_client" not in old.summary()
    assert old.summary()["gradients_per_client"] == done.summary()["gradients_per_client"]


def test_tables_and_the_report_say_so(task: dc.Task, data: dc.FederatedData) -> None:
    said = "tuned: a client takes 3 minibatch gradients more whenever its model is evaluated or deployed"
    compared = dc.compare(task, data, {"tuned": FineTune(**TUNED), "plain": AVG}, rounds=1, mode="vmap")
    [experiment] = Report(list(compared)).experiments
    told = notices(experiment, summary_rows(experiment))
    assert [text for text in told if text.startswith(said)] and not any("plain: a client" in text for text in told)
    out = StringIO()
    console = Console(file=out, width=300)
    print_run(compared.runs["tuned"][0], console)
    assert said in out.getvalue()
    print_run(compared.runs["plain"][0], console)
    assert out.getvalue().count("whenever its model") == 1
