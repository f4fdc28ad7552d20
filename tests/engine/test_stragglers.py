"""Stragglers finish a part of their work: FedAvg drops them, other methods keep what they did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.engine.cohort import finished_share, sample
from descant.methods import Ditto, FedAvg, FedProx, Local, LpProj, Method, PFedMe, Work

MANY = torch.arange(20_000)


@pytest.mark.parametrize("stragglers", [0.0, 0.1, 0.9, 1.0])
def test_the_asked_share_of_clients_straggles(stragglers: float) -> None:
    straggles = finished_share(1, 1, MANY, stragglers) < 1
    error = (stragglers * (1 - stragglers) / len(MANY)) ** 0.5
    assert abs(float(straggles.double().mean()) - stragglers) <= 4 * error


def test_a_straggler_finishes_any_number_of_epochs_as_likely() -> None:
    """Chi-square with 19 degrees of freedom: 43.8 is its 99.9 % point."""
    epochs = (finished_share(2, 1, MANY, 1.0) * 20).ceil().long()
    assert epochs.min() == 1 and epochs.max() == 20
    counts = epochs.bincount(minlength=21)[1:]
    assert float(((counts - 1000).square() / 1000).sum()) < 43.8


@given(seed=st.integers(0, 2**40), round=st.integers(1, 1000), share=st.floats(0, 1))
def test_who_straggles_depends_on_the_address_alone(seed: int, round: int, share: float) -> None:
    who = torch.tensor([5, 0, 3])
    together = finished_share(seed, round, torch.arange(6), share)
    assert torch.equal(finished_share(seed, round, who, share), together[who])
    assert bool(((together > 0) & (together <= 1)).all())


def test_a_straggler_works_for_whole_epochs(federation: Any, view: Any) -> None:
    sizes = (6, 1, 9, 4, 13, 2, 7)
    local = view(federation(sizes), stragglers=1.0)
    x = local.run(lambda x, grad: x + 1, torch.zeros(7, 1), work=Work(epochs=4, batch=3), role="personal").squeeze(
        1
    )
    epochs = (local.share * 4).ceil()
    assert x.tolist() == [int(e) * -(-n // 3) for e, n in zip(epochs, sizes, strict=True)]
    assert len(set(epochs.tolist())) > 1


@pytest.mark.parametrize(
    ("method", "drops"),
    [
        (FedAvg(epochs=4, batch=3), True),
        (FedAvg(epochs=4, batch=3, stragglers="keep"), False),
        (FedProx(epochs=4, batch=3), False),
        (FedProx(epochs=4, batch=3, stragglers="drop"), True),
        (Ditto(steps=3, solver=FedAvg(epochs=4, batch=3)), True),
        (Ditto(steps=3, solver=FedProx(epochs=4, batch=3)), False),
        (PFedMe(steps=4, lr=0.01), False),
        (LpProj(steps=4), False),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else str(value),
)
def test_who_is_lost_is_counted(run: Any, method: Method, drops: bool) -> None:
    done = run(method, rounds=4, cohort=6, stragglers=0.5)
    straggling = []
    for t in range(1, 5):
        cohort = sample(5, t, 6, torch.ones(7))
        straggling.append(int((finished_share(5, t, cohort, 0.5) < 1).sum()))
    assert sum(straggling) > 0
    assert [row["lost"] for row in done.history.rounds] == (straggling if drops else [0] * 4)
    assert [row["received"] + row["lost"] for row in done.history.rounds] == [6] * 4


def test_a_round_whose_messages_are_all_lost_leaves_the_server_as_it_was(run: Any) -> None:
    done = run(FedAvg(epochs=4, batch=3), stragglers=1.0)
    assert [row["lost"] for row in done.history.rounds] == [7, 7, 7]
    assert [row["bytes_up"] for row in done.history.rounds] == [0, 0, 0]
    assert torch.equal(done._simulation.server.state["w"], done._simulation.x0)
    assert done.collapse is None


def test_the_partial_work_of_a_straggler_is_kept_by_the_client(run: Any) -> None:
    """Whether or not its message is lost, a personal model keeps the steps that it took."""
    done = run(Local(steps=10, batch=None), rounds=1, stragglers=1.0)
    shares = finished_share(5, 1, torch.arange(7), 1.0)
    assert done.history.spent[1]["gradients"].tolist() == (shares * 10).ceil().tolist()
