"""Whole runs whose clients' rows travel: the same to the bit as with rows that stay.

Here the processor stands in for the GPU, and copies are made as late as they may be (`deferred`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.attacks import SignFlip
from descant.engine import unread
from descant.engine.clients import Clients
from descant.methods import AFL, METHODS, Ditto, FedAvg, Method
from descant.state import store
from tests import held
from tests.interrupted import assert_same, interrupt
from tests.state.deferred import Deferred

DATA = dc.data.synthetic(clients=9, samples=40, dim=5, classes=3)
ROUNDS = 6


def run(method: Method, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    task = dc.Task(torch.nn.Linear(5, 3))
    settings = {"rounds": ROUNDS, "mode": "vmap", "device": "cpu", **settings}
    return dc.simulate(task, DATA, method, **settings)


@pytest.fixture
def travels(monkeypatch: pytest.MonkeyPatch) -> list[Deferred]:
    """What was used from here on to take rows away and back."""
    made: list[Deferred] = []

    def ways(device: torch.device) -> Deferred:
        made.append(Deferred(device, seed=len(made)))
        return made[-1]

    monkeypatch.setattr(unread, "READ_LATER", ("cpu",))
    monkeypatch.setattr(store, "Streams", ways)
    monkeypatch.setattr(store.ClientStore, "_fits", lambda self: not self.spec or "Mapped" in type(self).__name__)
    return made


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cohort": 4},
        {"cohort": 4, "chunk": 2, "stragglers": 0.5},
        {"chunk": 4},
        {"trainers": "everyone", "cohort": 3, "chunk": 2},
        {"cohort": 5, "codec": {"name": "top-k", "share": 0.3}, "lost": 0.3},
        {"cohort": 5, "codec": {"name": "lbgm"}},
        {"attacks": [SignFlip()], "malicious": 0.3, "health": 2},
        {"evaluate": dc.Evaluation(every=1), "cohort": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "method", [Ditto(batch=8, steps=3), METHODS["apfl"](batch=8, steps=3)], ids=lambda m: m.name
)
def test_a_run_is_the_same_to_the_bit(
    method: Method, settings: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    stays = held.everything(run(method, **settings))
    travels = request.getfixturevalue("travels")
    comes_and_goes = held.everything(run(method, **settings))
    assert sum(ways.sent for ways in travels) > 0
    assert stays.keys() == comes_and_goes.keys()
    assert all(torch.equal(comes_and_goes[name], stays[name]) for name in stays)


def test_who_works_next_is_not_known_to_every_method(request: pytest.FixtureRequest) -> None:
    method = Ditto(batch=8, steps=3, solver=AFL(batch=8, steps=3))
    stays = held.personal(run(method, cohort=4))
    request.getfixturevalue("travels")
    assert held.personal(run(method, cohort=4)).equal(stays)


def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(tmp_path: Path, travels: list[Deferred]) -> None:
    method, settings = Ditto(batch=8, steps=3), {"cohort": 4, "commit": 2}
    unbroken = run(method, out=tmp_path / "unbroken", **settings)
    with pytest.raises(KeyboardInterrupt):
        run(method, out=tmp_path / "run", progress=interrupt(5), **settings)
    torch.manual_seed(0)
    assert_same(dc.resume(tmp_path / "run", dc.Task(torch.nn.Linear(5, 3)), DATA), unbroken)


@pytest.mark.parametrize("times", [1, 2])
def test_where_memory_runs_short_the_rows_beside_the_work_go_first(
    times: int, travels: list[Deferred], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are gone as many clients are tried again, and only then fewer."""
    plain, short = Clients.work, [True] * times

    def work(self: Clients, ctx: Any, who: torch.Tensor, *others: Any) -> Any:
        if ctx.round == 3 and short and short.pop():
            raise torch.OutOfMemoryError
        return plain(self, ctx, who, *others)

    monkeypatch.setattr(Clients, "work", work)
    method = Ditto(batch=8, steps=3, solver=FedAvg(batch=8, steps=3))
    ours = run(method)
    halved = [note for note in ours.config["execution"]["fallbacks"] if "did not hold 9 clients" in note]
    assert len(halved) == times - 1 and not short
    travel = held.simulation(ours).store._travel
    assert travel is not None and not any(each.rows for each in travel._sent) and travel._ahead is None
    assert torch.allclose(held.personal(ours), held.personal(run(method)))


def test_one_client_that_does_not_fit_is_tried_again_without_them(
    travels: list[Deferred], monkeypatch: pytest.MonkeyPatch
) -> None:
    method, plain, short = Ditto(batch=8, steps=3), Clients.work, [True]
    stays = held.personal(run(method, chunk=1))

    def work(self: Clients, ctx: Any, who: torch.Tensor, *others: Any) -> Any:
        if ctx.round == 3 and short and short.pop():
            raise torch.OutOfMemoryError
        return plain(self, ctx, who, *others)

    monkeypatch.setattr(Clients, "work", work)
    assert held.personal(run(method, chunk=1)).equal(stays) and not short
