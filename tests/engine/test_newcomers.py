"""Clients that come later: served by a federation that never saw them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.attacks import SignFlip
from descant.engine.newcomers import apart
from descant.errors import SettingError
from descant.methods import METHODS, MOCHA, Ditto, FedAvg, Local
from tests.interrupted import interrupt

LATE = (1, 4)
WHOLE: dict[str, Any] = {"steps": 3, "batch": None, "lr": 0.2}
COLUMN = "test_loss"


def losses(run: dc.Run, model: str = "personal", column: str = COLUMN) -> np.ndarray:
    """What every client loses at the end, in the order of the data."""
    last = run.clients.filter(
        (run.clients["round"] == run.clients["round"].max()) & (run.clients["model"] == model)
    )
    return last.sort("client")[column].to_numpy()


def loss_of(model: nn.Module, data: dc.FederatedData, client: int, part: str = "test") -> float:
    inputs, targets = data.part(part).client(client)
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(inputs), targets))


def test_who_takes_part_learns_as_if_there_were_no_newcomers(task: dc.Task, data: dc.FederatedData) -> None:
    how: dict[str, Any] = {"rounds": 3, "cohort": 3, "mode": "vmap", "stragglers": 0.3}
    ditto = Ditto(steps=2, batch=3, solver=FedAvg(steps=2, batch=3))
    stay = [k for k in range(len(data)) if k not in LATE]
    alone = dc.simulate(task, replace(data.only(stay), numbers=None), ditto, **how)
    served = dc.simulate(task, data, ditto, newcomers=LATE, **how)
    assert served.history.federation.names == [str(k) for k in range(7)]
    assert np.flatnonzero(served.history.federation.members("newcomers")).tolist() == list(LATE)
    here = served.clients.filter(served.clients["client"].is_in(stay))
    assert here["client"].to_list() == stay * (len(here) // len(stay))
    assert here.drop("client").equals(alone.clients.drop("client"))
    for place, client in enumerate(stay):
        ours, theirs = served.personal(client, round="last"), alone.personal(place, round="last")
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
        assert np.array_equal(served.confusion(client), alone.confusion(place))
    assert served.rounds.drop("seconds").equals(alone.rounds.drop("seconds"))
    with_them, without = served.summary(), alone.summary()
    same = [name for name in without if name not in ("seconds", "newcomers")]
    assert [with_them[name] for name in same] == [without[name] for name in same]
    assert (with_them["clients"], with_them["newcomers"], without["newcomers"]) == (5, 2, 0)


def test_a_newcomer_alone_reaches_what_local_training_does(task: dc.Task, data: dc.FederatedData) -> None:
    """Full batches: the draws of minibatches are other ones, since rounds are."""
    local = Local(**WHOLE)
    served = dc.simulate(task, data, local, rounds=2, newcomers=LATE, newcomer_rounds=5, evaluate=2, mode="vmap")
    trained = dc.simulate(task, data, local, rounds=5, evaluate=5, mode="vmap")
    np.testing.assert_allclose(losses(served)[list(LATE)], losses(trained)[list(LATE)], rtol=1e-12)
    gradients = losses(served, column="gradients")
    assert gradients.tolist() == [15 if k in LATE else 6 for k in range(7)], (
        "what a newcomer computes is on its own account"
    )


def test_a_newcomer_of_fedavg_gets_the_shared_model(task: dc.Task, data: dc.FederatedData) -> None:
    run = dc.simulate(task, data, FedAvg(**WHOLE), rounds=2, newcomers=LATE, evaluate=2, mode="vmap")
    expected = [loss_of(run.shared(round="last"), data, k) for k in LATE]
    np.testing.assert_allclose(losses(run)[list(LATE)], expected, rtol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_newcomer_of_ditto_is_tied_to_the_shared_model(
    task: dc.Task, data: dc.FederatedData, rounds: int
) -> None:
    """Against plain gradient steps on f(v) + lam/2 |v - w|^2."""
    ditto = Ditto(lam=0.7, solver=FedAvg(**WHOLE), **WHOLE)
    run = dc.simulate(task, data, ditto, rounds=2, newcomers=LATE, newcomer_rounds=rounds, evaluate=2, mode="vmap")
    w = [p.detach() for p in run.shared(round="last").parameters()]
    for k in LATE:
        model = task.module(task.start(), task.buffer_start())
        inputs, targets = data.train.client(k)
        for _ in range(rounds * 3):
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            with torch.no_grad():
                for v, towards in zip(model.parameters(), w, strict=True):
                    assert isinstance(v.grad, Tensor)
                    v -= 0.2 * (v.grad + 0.7 * (v - towards))
        assert losses(run)[k] == pytest.approx(loss_of(model, data, k), rel=1e-10)
    served = run.summary()
    accuracies = losses(run, column="test_accuracy")
    mean = np.mean(accuracies[list(LATE)])
    assert served["newcomers.personal.test_accuracy.mean@last"] == pytest.approx(mean)
    others = np.delete(accuracies, LATE)
    assert served["personal.test_accuracy.mean@last"] == pytest.approx(np.mean(others))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mocha"}))  # which trains linear models
def test_every_method_serves_newcomers_or_says_why_not(task: dc.Task, data: dc.FederatedData, name: str) -> None:
    how: dict[str, Any] = {"rounds": 2, "cohort": 3, "mode": "vmap", "evaluate": 2, "newcomers": 2}
    try:
        run = dc.simulate(task, data, METHODS[name](), **how)
    except SettingError as error:
        assert str(error).startswith(f"newcomers: not with the method '{name}': ")
        return
    assert np.isfinite(losses(run)).all() and len(losses(run)) == 7


def test_a_method_whose_server_knows_its_clients_refuses(data: dc.FederatedData) -> None:
    rows = [torch.randn(6, 2, dtype=torch.float64) for _ in range(4)]
    linear = dc.FederatedData.from_arrays([{"train": (x, x.sum(1, keepdim=True))} for x in rows])
    task = dc.Task(nn.Linear(2, 1, bias=False).double(), loss="squared_error")
    with pytest.raises(SettingError, match=r"newcomers: not with .*mocha.*something of its own"):
        dc.simulate(task, linear, MOCHA(loss="squared"), rounds=1, newcomers=1, mode="vmap")


@pytest.mark.slow
def test_a_resumed_run_serves_the_same_newcomers(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 5, "cohort": 3, "mode": "vmap", "newcomers": 0.3, "store": "disk"}
    ditto = Ditto(steps=2, batch=3, solver=FedAvg(steps=2, batch=3))
    unbroken = dc.simulate(task, data, ditto, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task, data, ditto, out=tmp_path / "run", progress=interrupt(3), **how)
    resumed = dc.resume(tmp_path / "run", task, data)
    read = dc.load(tmp_path / "run")
    for run in (resumed, read):
        assert run.clients.equals(unbroken.clients)
        ours, theirs = ({n: v for n, v in r.summary().items() if n != "seconds"} for r in (run, unbroken))
        assert ours == theirs
    assert sum(name.startswith("newcomers.") for name in read.summary()) > 0


def test_more_newcomers_contain_the_fewer_and_names_are_as_good_as_numbers(data: dc.FederatedData) -> None:
    drawn = [set(apart(data, many, seed=3).order[7 - many :]) for many in (1, 2, 5)]
    assert drawn[0] < drawn[1] < drawn[2]
    assert apart(data, 2 / 7, seed=3).order == apart(data, 2, seed=3).order
    assert apart(data, ["4", 1], seed=3).order == apart(data, [1, 4], seed=0).order == [0, 2, 3, 5, 6, 1, 4]
    assert apart(data, 0, seed=3).newcomers is None


@pytest.mark.parametrize(
    ("newcomers", "words"),
    [
        (7, "nobody of the 7 clients is left"),
        (1.0, "nobody of the 7 clients is left"),
        ([9], "no client 9: numbers go from 0 to 6"),
        (["Ulm"], "Ulm"),
        ([1, 1], "different"),
        (-1, "newcomers"),
        ("1", "newcomers"),
    ],
)
def test_what_cannot_be_newcomers_is_refused(
    task: dc.Task, data: dc.FederatedData, newcomers: Any, words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        dc.simulate(task, data, Local(), rounds=1, newcomers=newcomers)


def test_attackers_are_named_by_the_numbers_that_the_data_gives_them(task: dc.Task, data: dc.FederatedData) -> None:
    how: dict[str, Any] = {"rounds": 1, "mode": "vmap", "newcomers": [0, 1], "attacks": [SignFlip()]}
    run = dc.simulate(task, data, FedAvg(steps=1), malicious=[3, 5], **how)
    federation = run.history.federation
    assert [n for n, bad in zip(federation.names, federation.members("malicious"), strict=True) if bad] == [
        "3",
        "5",
    ]
    with pytest.raises(SettingError, match=r"malicious: the clients \[1\] come later"):
        dc.simulate(task, data, FedAvg(steps=1), malicious=[1, 5], **how)
