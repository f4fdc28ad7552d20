"""Stragglers finish a part of their work: FedAvg drops them, other methods keep what they did."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from descant import Task
from descant.engine.cohort import finished_share, sample
from descant.methods import Ditto, FedAvg, FedProx, Local, LpProj, Method, PFedMe, Until, Work
from tests import held

MANY = torch.arange(20_000)


@pytest.mark.parametrize("stragglers", [0.0, 0.1, 0.9, 1.0])
def test_the_asked_share_of_clients_straggles(stragglers: float) -> None:
    straggles = finished_share(1, 1, MANY, stragglers) < 1
    error = (stragglers * (1 - stragglers) / len(MANY)) ** 0.5
    assert abs(float(straggles.double().mean()) - stragglers) <= 4 * error


def test_a_straggler_takes_any_number_of_steps_as_likely() -> None:
    """Chi-square with 19 degrees of freedom: 43.8 is its 99.9 % point."""
    steps = (finished_share(2, 1, MANY, 1.0) * 20).ceil().long()
    assert steps.min() == 1 and steps.max() == 20
    counts = steps.bincount(minlength=21)[1:]
    assert float(((counts - 1000).square() / 1000).sum()) < 43.8


@given(seed=st.integers(0, 2**40), round=st.integers(1, 1000), share=st.floats(0, 1))
def test_who_straggles_depends_on_the_address_alone(seed: int, round: int, share: float) -> None:
    who = torch.tensor([5, 0, 3])
    together = finished_share(seed, round, torch.arange(6), share)
    assert torch.equal(finished_share(seed, round, who, share), together[who])
    assert bool(((together > 0) & (together <= 1)).all())


SIZES = (6, 1, 9, 4, 13, 2, 7)


def add_one(x: Tensor, grad: Any) -> Tensor:
    return x + 1


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_straggler_takes_a_part_of_its_steps(federation: Any, view: Any, epochs: int) -> None:
    """Also of those of a single epoch; rounded up, so that each takes one at least."""
    local = view(federation(SIZES), stragglers=1.0)
    x = local.run(add_one, torch.zeros(7, 1), work=Work(epochs=epochs, batch=3), role="personal").squeeze(1)
    asked, shares = [epochs * -(-n // 3) for n in SIZES], finished_share(5, 1, torch.arange(7), 1.0).tolist()
    assert x.tolist() == [ceil(share * all) for share, all in zip(shares, asked, strict=True)]
    assert any(0 < steps < all for steps, all in zip(x.tolist(), asked, strict=True))
    assert local.finished.tolist() == [steps == all for steps, all in zip(x.tolist(), asked, strict=True)]
    assert not local.finished.all() and local.finished.any(), "a client of one step always finishes"


def test_a_method_learns_what_its_clients_did(federation: Any, view: Any) -> None:
    """Steps and examples by role, over several runs, phases and draws; a straggler's part only."""
    for sizes in (SIZES, tuple(range(1, 25))):  # few clients, and so many that those who finish are left out
        local = view(federation(sizes), stragglers=0.5)
        assert local.finished.all() and local.taken("shared").steps.tolist() == [0] * len(sizes)
        nothing = torch.zeros(len(sizes), 1)
        shared = local.run(add_one, nothing, work=Work(epochs=2, batch=3), role="shared").squeeze(1).long()
        again = local.run(add_one, nothing, work=Work(steps=5, batch=2), role="shared/1", draws=2).squeeze(1).long()
        own = local.run(add_one, nothing, work=Work(steps=1, batch=None), role="personal").squeeze(1).long()
        assert torch.equal(local.taken("shared").steps, shared + again)
        assert torch.equal(local.taken("shared/1").steps, again)
        assert torch.equal(local.taken().steps, shared + again + own)
        assert torch.equal(local.taken("personal").examples, local.n)
        whole = finished_share(5, 1, torch.arange(len(sizes)), 0.5) == 1
        once = 2 * local.n + 2 * (5 // ((local.n + 1) // 2) * local.n)  # 5 minibatches of 2 may end within an epoch
        rest = 5 % ((local.n + 1) // 2) * 2
        assert torch.equal(local.taken("shared").examples[whole], (once + 2 * rest)[whole])
        assert local.taken("personal").finished.all(), "one step is always finished"
        assert torch.equal(local.finished, local.taken("shared").finished), "what a message tells of"
        assert not local.finished.all() and local.taken("shared").finished[whole].all()


def test_who_meets_a_rule_has_finished_and_did_not_move_at_that_step(federation: Any, view: Any) -> None:
    local = view(federation((4, 4, 4)), stragglers=0.0)

    def step(x: Tensor, grad: Any, limit: Tensor) -> Until:
        return Until(x + 1, met=(x >= limit).squeeze(1))

    limit = torch.tensor([[0.0], [2.0], [9.0]])
    local.run(step, torch.zeros(3, 1), limit, work=Work(steps=5, batch=2, hold=True), role="personal")
    assert local.taken("personal").steps.tolist() == [0, 2, 5]
    assert local.taken("personal").examples.tolist() == [0, 4, 10]
    assert local.finished.all(), "a rule was met, or all steps were taken"


def test_a_message_is_dropped_only_if_its_work_is_unfinished(run: Any) -> None:
    """A step each, which nobody can leave unfinished; and under Ditto the messages are those of its solver."""
    fedavg = FedAvg(epochs=1, batch=None)
    assert [row["lost"] for row in run(fedavg, stragglers=1.0).history.rounds] == [0, 0, 0]
    solver = FedAvg(epochs=2, batch=3)
    alone, under = (run(m, stragglers=0.7) for m in (solver, Ditto(steps=10, batch=2, solver=solver)))
    lost = [row["lost"] for row in alone.history.rounds]
    assert 0 < sum(lost) < 21 and [row["lost"] for row in under.history.rounds] == lost
    assert torch.equal(held.shared(alone), held.shared(under))


@pytest.mark.few(2)
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
    straggling, steps = [], torch.tensor([4 * -(-n // 3) for n in SIZES])
    for t in range(1, 5):
        cohort = sample(5, t, 6, torch.ones(7))
        taken = (finished_share(5, t, cohort, 0.5) * steps[cohort]).ceil()
        straggling.append(int((taken < steps[cohort]).sum()))
    assert sum(straggling) > 0
    assert [row["lost"] for row in done.history.rounds] == (straggling if drops else [0] * 4)
    assert [row["received"] + row["lost"] for row in done.history.rounds] == [6] * 4


def test_a_round_whose_messages_are_all_lost_leaves_the_server_as_it_was(run: Any, task: Task) -> None:
    done = run(FedAvg(steps=30, batch=3), stragglers=1.0)
    assert [row["lost"] for row in done.history.rounds] == [7, 7, 7]
    assert [row["bytes_up"] for row in done.history.rounds] == [0, 0, 0]
    assert torch.equal(held.shared(done), task.start())
    assert done.collapse is None


def test_the_partial_work_of_a_straggler_is_kept_by_the_client(run: Any) -> None:
    """Whether or not its message is lost, a personal model keeps the steps that it took."""
    done = run(Local(steps=10, batch=None), rounds=1, stragglers=1.0)
    shares = finished_share(5, 1, torch.arange(7), 1.0)
    assert done.history.spent[1]["gradients"].tolist() == (shares * 10).ceil().tolist()
