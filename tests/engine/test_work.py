"""Local work: each client takes its own number of steps, and every gradient is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from descant import Task
from descant.engine.cohort import finished_share
from descant.methods import Ditto, FedAvg, Gradient, Local, LpProj, Method, PFedMe, Until, Work
from tests import held


def few_or_many(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
    """A number for each of a few clients, or of so many that those who finish early are left out of the batch."""
    return st.lists(numbers, min_size=1, max_size=4) | st.lists(numbers, min_size=12, max_size=20)


def steps_of(n: int, work: Work, drop_last: bool = False) -> int:
    if work.steps is not None:
        return work.steps
    assert work.epochs is not None
    if work.batch is None:
        return work.epochs
    return work.epochs * (max(1, n // work.batch) if drop_last else -(-n // work.batch))


@given(
    sizes=few_or_many(st.integers(1, 9)),
    work=st.one_of(
        st.builds(Work, steps=st.integers(1, 6), batch=st.none() | st.integers(1, 10)),
        st.builds(Work, epochs=st.integers(1, 3), batch=st.none() | st.integers(1, 10)),
    ),
    drop_last=st.booleans(),
)
def test_a_client_that_has_finished_never_changes(
    federation: Any, view: Any, sizes: list[int], work: Work, drop_last: bool
) -> None:
    """The step adds one, and writes NaN over those who are through: none of it may stay."""
    local = view(federation(tuple(sizes)), drop_last=drop_last)
    expected = torch.tensor([steps_of(n, work, drop_last) for n in sizes], dtype=torch.float64)

    def step(x: Tensor, grad: Gradient, limit: Tensor) -> Tensor:
        return torch.where(x >= limit, torch.nan, x + 1)

    zeros = torch.zeros(len(sizes), 2, dtype=torch.float64)
    x = local.run(step, zeros, expected[:, None], work=work, role="personal")
    assert torch.equal(x, expected[:, None].expand(-1, 2))


@given(
    limits=few_or_many(st.integers(0, 7)),
    cap=st.integers(1, 6),
    stragglers=st.sampled_from([0.0, 1.0]),
)
def test_a_rule_stops_each_client_where_it_is_met(
    federation: Any, view: Any, limits: list[int], cap: int, stragglers: float
) -> None:
    """A client stays at the x that met the rule; who never did is stopped by its cap, and counted."""
    local = view(federation((3,) * len(limits)), stragglers=stragglers)
    caps = (finished_share(5, 1, torch.arange(len(limits)), stragglers) * cap).ceil().long().tolist()

    def step(x: Tensor, grad: Gradient, limit: Tensor) -> Until:
        grad(torch.zeros(len(x), 43, dtype=torch.float64))
        return Until(x + 1, met=(x >= limit).squeeze(1))

    start, limit = torch.zeros(len(limits), 1, dtype=torch.int64), torch.tensor(limits)[:, None]
    x = local.run(step, start, limit, work=Work(steps=cap, batch=2, hold=True), role="personal")
    pairs = list(zip(limits, caps, strict=True))
    assert x.squeeze(1).tolist() == [min(n, c) for n, c in pairs]
    assert local.figures["capped"].tolist() == [n >= c for n, c in pairs]
    assert local.evaluations.tolist() == [min(n + 1, c) for n, c in pairs]  # the last one found the rule met
    assert local.examples.tolist() == [2 * min(n + 1, c) for n, c in pairs]


def test_a_step_may_carry_a_tuple(federation: Any, view: Any) -> None:
    """Heavy-ball momentum on x^2 / 2 carries (x, velocity); each client's are those of its own last step."""
    local = view(federation((1, 4, 2)))

    def step(carried: tuple[Tensor, Tensor], grad: Gradient) -> tuple[Tensor, Tensor]:
        x, velocity = carried
        velocity = 0.5 * velocity + x
        return x - 0.1 * velocity, velocity

    one = torch.ones(3, 2, dtype=torch.float64)
    x, velocity = local.run(step, (one, 0 * one), work=Work(epochs=2, batch=2), role="personal")
    for k, steps in enumerate((2, 4, 2)):
        x_k, v_k = 1.0, 0.0
        for _ in range(steps):
            v_k = 0.5 * v_k + x_k
            x_k -= 0.1 * v_k
        assert x[k].tolist() == pytest.approx([x_k] * 2, abs=1e-14)
        assert velocity[k].tolist() == pytest.approx([v_k] * 2, abs=1e-14)


SIZES = [6, 1, 9, 4, 13, 2, 7]
STEPS_OF_3 = [2, 1, 3, 2, 5, 1, 3]  # minibatches of 3 in an epoch


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "gradients", "examples"),
    [
        (FedAvg(epochs=2, batch=3), [2 * s for s in STEPS_OF_3], [2 * n for n in SIZES]),
        (FedAvg(steps=4, batch=None), [4] * 7, [4 * n for n in SIZES]),
        (Local(epochs=1, batch=3), STEPS_OF_3, SIZES),
        (
            Ditto(epochs=3, batch=None, solver=FedAvg(epochs=1, batch=3)),
            [s + 3 for s in STEPS_OF_3],
            [4 * n for n in SIZES],
        ),
        (PFedMe(epochs=2, batch=3, R=3, lr=0.01), [6 * s for s in STEPS_OF_3], [6 * n for n in SIZES]),
        (LpProj(steps=5, batch=1, R=2), [10] * 7, [10] * 7),
        (LpProj(nu=1e-30, cap=7, batch=3), [7] * 7, [7 * min(n, 3) for n in SIZES]),
    ],
    ids=["fedavg", "fedavg-full", "local", "ditto", "pfedme", "lp-proj", "lp-proj-nu"],
)
def test_every_gradient_is_counted(run: Any, method: Method, gradients: list[int], examples: list[int]) -> None:
    done = run(method, rounds=3, cohort=None)
    spent = done.history.spent[3]
    assert spent["gradients"].tolist() == [3 * g for g in gradients]
    assert spent["examples"].tolist() == [3 * e for e in examples]
    assert [row["gradients"] for row in done.history.rounds] == [sum(gradients)] * 3
    assert done.summary()["gradients_per_client"] == 3 * sum(gradients) / 7


@pytest.mark.parametrize(("trainers", "busy"), [("cohort", 3), ("everyone", 7)])
def test_who_trains_is_who_pays(run: Any, task: Task, trainers: str, busy: int) -> None:
    done = run(Local(steps=2, batch=2), rounds=1, cohort=3, trainers=trainers)
    gradients = done.history.spent[1]["gradients"]
    assert sorted(gradients.tolist()) == [0] * (7 - busy) + [2] * busy
    moved = (held.personal(done) != task.start()).any(1)
    assert moved.tolist() == (gradients > 0).tolist()
