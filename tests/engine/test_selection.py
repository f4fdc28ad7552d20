"""Model selection: the better of a client's two models on its own validation data."""

from __future__ import annotations

from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

import descant as dc
from descant.cli.tables import comparison_table, print_run
from descant.engine.evaluation import Evaluation, select
from descant.engine.records import Evaluated
from descant.errors import SettingError
from descant.experiment.grid import comparison
from descant.experiment.settings import RunSettings
from descant.methods import METHODS, Ditto, FedAvg, Local, LpProj, Method
from tests.interrupted import interrupt

ALL = ("personal", "shared", "selected")
some = st.sampled_from([0.0, 0.25, 0.5, 1.0, float("nan")])
table = arrays(np.float64, (4, 9), elements=some)  # validation and test loss, validation and test metric


def evaluated(model: str, values: np.ndarray) -> Evaluated:
    a, b, c, d = torch.from_numpy(values)
    return Evaluated(3, model, {"valid": a, "test": b}, {"valid": c, "test": d})


@given(table, table, st.booleans())
def test_the_metric_decides_then_the_loss_then_the_client_keeps_its_own(
    own: np.ndarray, common: np.ndarray, higher: bool
) -> None:
    """A client without validation data (NaN) keeps its own model."""
    found = select(evaluated("personal", own), evaluated("shared", common), higher)
    assert (found.round, found.model) == (3, "selected")
    for k in range(9):
        gain = common[2, k] - own[2, k] if higher else own[2, k] - common[2, k]
        shared = gain > 0 or (gain == 0 and common[0, k] < own[0, k])
        expected = (common if shared else own)[:, k]
        values = [found.loss["valid"], found.loss["test"], found.metric["valid"], found.metric["test"]]
        np.testing.assert_array_equal([float(v[k]) for v in values], expected)


@pytest.fixture(scope="module")
def uneven() -> dc.FederatedData:
    """Five clients, two of them without validation data; the data of the others gives each model some wins."""
    clients = []
    for k, valid in enumerate((6, 0, 9, 5, 0)):
        generator = torch.Generator().manual_seed(k)
        X = torch.randn(40, 4, generator=generator, dtype=torch.float64)
        own = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        y = (X @ (own if k % 2 else torch.eye(4, 3, dtype=torch.float64))).argmax(1)
        parts = {"train": slice(0, 6), "test": slice(6, 20), "valid": slice(20, 20 + valid)}
        clients.append({part: (X[cut], y[cut]) for part, cut in parts.items() if cut.stop > cut.start})
    return dc.FederatedData.from_arrays(clients, classes=3)


@cache
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Linear(4, 3).double())


DITTO = Ditto(lam=0.05, lr=0.3, steps=8, batch=None, solver=FedAvg(lr=0.5, steps=4, batch=None))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "kind", [kind for kind in METHODS.values() if kind.has_shared and kind.personalizes], ids=lambda kind: kind.name
)
def test_every_method_with_both_models_selects(uneven: dc.FederatedData, kind: type[Method]) -> None:
    how = Evaluation(every=3, models=ALL)
    run = dc.simulate(task(), uneven, kind(lr=0.05, steps=3, batch=None), rounds=3, evaluate=how, mode="vmap")
    own, common, chosen = (run.history.evaluated[model][3] for model in ALL)
    for k in range(len(uneven)):
        a, b = own["valid_accuracy"][k], common["valid_accuracy"][k]
        shared = b > a or (a == b and common["valid_loss"][k] < own["valid_loss"][k])
        assert chosen["test_accuracy"][k] == (common if shared else own)["test_accuracy"][k]


def test_a_run_reports_the_selected_model(uneven: dc.FederatedData, tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 6, "evaluate": Evaluation(every=2, models=ALL), "mode": "vmap"}
    run = dc.simulate(task(), uneven, DITTO, out=tmp_path / "run", **how)
    took = {"personal": 0, "shared": 0}
    for t in (0, 2, 4, 6):
        own, common, found = (run.history.evaluated[model][t] for model in ALL)
        for k in range(5):
            better = common["valid_accuracy"][k] > own["valid_accuracy"][k]
            tie = common["valid_accuracy"][k] == own["valid_accuracy"][k]
            shared = better or (tie and common["valid_loss"][k] < own["valid_loss"][k])
            assert not shared or k not in (1, 4)
            took["shared" if shared else "personal"] += 1
            for column in found:
                np.testing.assert_equal(found[column][k], (common if shared else own)[column][k])
    assert min(took.values()) > 2, took
    summary = run.summary()
    mean = run.history.evaluated["selected"][6]["test_accuracy"].mean()
    assert summary["selected.test_accuracy.mean@last"] == pytest.approx(mean)
    assert summary["selected.valid_accuracy.mean@last"] >= summary["personal.valid_accuracy.mean@last"]
    assert summary["selected.valid_accuracy.mean@last"] >= summary["shared.valid_accuracy.mean@last"]
    assert dc.load(tmp_path / "run").summary() == summary
    plain = dc.simulate(task(), uneven, DITTO, **how | {"evaluate": 2}).summary()
    assert {n for n in summary if n not in plain} == {n for n in summary if n.startswith("selected.")}
    assert not any(n.startswith("selected.") for n in plain), "only where it is asked for"


@pytest.mark.parametrize("method", [Local(steps=1), FedAvg(steps=1), LpProj(dim=3, steps=1)], ids=lambda m: m.name)
def test_a_method_with_one_model_has_nothing_to_select(uneven: dc.FederatedData, method: Method) -> None:
    run = dc.simulate(task(), uneven, method, rounds=1, evaluate=Evaluation(models=ALL))
    assert list(run.history.evaluated) == ["personal"]


def test_selection_takes_no_further_forward_pass(uneven: dc.FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    import descant.engine.evaluation as engine

    calls: list[int] = []
    measure = vars(engine)["measure"]
    monkeypatch.setattr(engine, "measure", lambda *a: calls.append(1) or measure(*a))  # type: ignore[func-returns-value]
    counts = []
    for models in (("personal", "shared"), ALL):
        dc.simulate(task(), uneven, DITTO, rounds=2, evaluate=Evaluation(models=models), mode="vmap")  # type: ignore[arg-type]
        counts.append(len(calls))
    assert counts[1] == 2 * counts[0] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": ("selected",)}, "Evaluation.models = .*: it must be all three where one is to be 'selected'"),
        ({"models": ("personal", "selected")}, "it must be all three where one is to be 'selected'"),
        ({"models": ALL, "parts": ("test",)}, "Evaluation.parts = .*: it must be parts with 'valid'"),
        ({"models": ("best",)}, "Evaluation.models = .*: it must be several, each 'personal' or"),
    ],
)
def test_what_selection_needs_is_asked_for(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Evaluation(**settings)
    if "best" not in settings["models"]:
        values = {"data": "digits", "method": "ditto", "rounds": 1, "evaluate": settings}
        with pytest.raises(SettingError, match=message.replace("Evaluation.", "evaluate.")):
            RunSettings.of(values)


@pytest.mark.slow
def test_tables_show_the_selected_model_where_it_was_asked_for(tmp_path: Path) -> None:
    grid = {
        "data": {"name": "synthetic", "clients": 6, "samples": 30, "dim": 4, "classes": 3},
        "methods": {"ditto": {"name": "ditto", "steps": 2}, "local": {"name": "local", "steps": 2}},
        "rounds": 2,
    }
    shown = {}
    for name, models in (("two", ["personal", "shared"]), ("three", list(ALL))):
        results = list(comparison(grid | {"evaluate": {"models": models}}, tmp_path / name).run())
        console = Console(width=200, file=StringIO())
        comparison_table(results, console)
        shown[name] = console.file.getvalue()  # type: ignore[attr-defined]
        runs = {cell.label: run for cell, run in results}
        page = Console(width=200, file=StringIO())
        print_run(runs["ditto"], page)
        lines = page.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert {line.split(",")[0].strip() for line in lines if ", last" in line} == set(models)
    assert "selected" not in shown["two"] and "selected model" in shown["three"]
    rows = {line.split()[0]: line.split() for line in shown["three"].splitlines() if line.strip()}
    figures = runs["ditto"].summary()
    expected = [figures[f"{model}.test_accuracy.mean@chosen_on_valid"] for model in ("shared", "selected")]
    assert rows["ditto"][5:7] == [f"{value:.3f}" for value in expected]
    assert rows["local"][5:7] == ["–", "–"]


@pytest.mark.slow
def test_a_resumed_run_selects_as_the_unbroken_one(uneven: dc.FederatedData, tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 4, "evaluate": Evaluation(models=ALL), "mode": "vmap", "commit": 1}
    unbroken = dc.simulate(task(), uneven, DITTO, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task(), uneven, DITTO, out=tmp_path / "run", progress=interrupt(2), **how)
    assert dc.resume(tmp_path / "run", task(), uneven).clients.equals(unbroken.clients)
