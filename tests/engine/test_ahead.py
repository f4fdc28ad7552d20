"""Minibatches that are drawn ahead, while a GPU is at work: the same ones, in every kind of round.

Here the processor stands in for the GPU: it is asked for the same things in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import descant as dc
from descant.attacks import OptimizedBackdoor, SignFlip
from descant.engine import unread, view
from descant.engine.surroundings import Surroundings
from descant.execution.batches import Schedule
from descant.execution.chance import run_watched
from descant.methods import AFL, L2SGD, Ditto, FedAvg, Local, Method, PerFedAvg, Work
from tests import held

DATA = dc.data.synthetic(clients=9, samples=40, dim=5, classes=3)
ROUNDS = 5


def run(method: Method, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    task = dc.Task(torch.nn.Linear(5, 3))
    return dc.simulate(task, DATA, method, rounds=ROUNDS, mode="vmap", device="cpu", **settings)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, int]]:
    """The addresses of the minibatches that were there when they were asked for."""
    found: list[tuple[int, str, int]] = []
    plain = Surroundings.schedule

    def watched(self: Surroundings, clients: Tensor, work: Work, address: tuple[int, str, int]) -> Schedule:
        if (id(clients), work, address) in self.ahead:
            found.append(address)
        return plain(self, clients, work, address)

    monkeypatch.setattr(Surroundings, "schedule", watched)
    return found


@pytest.mark.parametrize(
    "method",
    [FedAvg(batch=8), Ditto(batch=8), PerFedAvg(batch=8), AFL(batch=8), Local(batch=8), L2SGD(batch=8)],
    ids=lambda method: method.name,
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cohort": 4, "stragglers": 0.5},
        {"lost": 0.5},
        {"chunk": 4},
        {"trainers": "everyone", "cohort": 3},
        {"attacks": [SignFlip()], "malicious": 0.3},
        {"attacks": [OptimizedBackdoor(target=1)], "malicious": 0.3},  # who changes the data between rounds
        {"health": 2},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_a_run_is_the_same_to_the_bit(
    method: Method, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(method, **settings)
    monkeypatch.setattr(unread, "READ_LATER", ("cpu",))
    ahead = run(method, **settings)
    theirs, mine = held.everything(plain), held.everything(ahead)
    assert theirs.keys() == mine.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    counts = [name for name in plain.rounds.columns if name != "seconds"]
    assert ahead.rounds.select(counts).equals(plain.rounds.select(counts))


@pytest.mark.parametrize("method", [FedAvg(batch=8), Local(batch=8)], ids=lambda method: method.name)
@pytest.mark.parametrize("settings", [{}, {"cohort": 4}, {"lost": 0.9}], ids=lambda settings: ",".join(settings))
def test_every_round_but_the_first_finds_its_minibatches(
    method: Method, settings: dict[str, Any], taken: list[tuple[int, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after rounds in which nobody sends anything."""
    run(method, **settings)
    assert not taken
    monkeypatch.setattr(unread, "READ_LATER", ("cpu",))
    run(method, **settings)
    assert [address[-1] for address in taken] == list(range(2, ROUNDS + 1))


@pytest.mark.parametrize("where", ["before the steps", "after them"])
def test_a_round_that_memory_did_not_hold_is_billed_once(
    where: str, taken: list[tuple[int, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who works next is asked after the work: also of a round that is done again with fewer clients at once."""
    plain = run(FedAvg(batch=8))
    walks, failed = run_watched, list[int]()

    def short(*given: Any) -> Any:
        (schedule,) = given[-1]
        if schedule.address[-1] < 3 or len(schedule.sizes) <= 5:
            return walks(*given)
        failed.append(schedule.address[-1])
        if where == "after them":
            walks(*given)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(unread, "READ_LATER", ("cpu",))
    monkeypatch.setattr(view, "run_watched", short)
    again = run(FedAvg(batch=8))
    assert failed == [3]
    assert again.config["execution"]["fallbacks"] == [
        "the memory did not hold 9 clients at once: 5 are trained at once"
    ]
    counts = [name for name in plain.rounds.columns if name != "seconds"]
    assert again.rounds.select(counts).equals(plain.rounds.select(counts))
    mine, theirs = again.history.spent[ROUNDS], plain.history.spent[ROUNDS]
    assert all(np.array_equal(mine[kind], theirs[kind]) for kind in theirs)
    torch.testing.assert_close(held.shared(again), held.shared(plain))
    assert {address[-1] for address in taken} == {2, 3, 4, 5}, "those of round 3 were drawn in vain"


def test_no_room_for_them_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(FedAvg(batch=8))

    def full(*given: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(unread, "READ_LATER", ("cpu",))
    monkeypatch.setattr(Surroundings, "draw_ahead", full)
    assert torch.equal(held.shared(run(FedAvg(batch=8))), held.shared(plain))
