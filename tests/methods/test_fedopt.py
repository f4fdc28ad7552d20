"""The servers of FedOpt: torch's own optimizers where those exist, and closed forms where not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task, simulate
from descant.aggregators import CoordinateMedian
from descant.context import Context
from descant.methods import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, ServerView
from descant.methods.fedopt import ServerStep

D = 6
FAMILY = [FedAvgM, FedAdagrad, FedYogi, FedAdam]


def context(task: Task) -> Context:
    return Context(0, 0, 3, task.layout, torch.linspace(-1, 1, D).double())


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(nn.Linear(D, 1, bias=False).double())


@pytest.fixture(scope="module")
def updates() -> Tensor:
    """Twelve mean updates."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(12, D, generator=generator, dtype=torch.float64)


def servers(method: ServerStep, task: Task, updates: Tensor) -> list[Tensor]:
    """w after each of the updates."""
    ctx = context(task)
    state, found = method.server_start(ctx), []
    for delta in updates:
        state = method.moved(ServerView(state, ctx), delta)
        found.append(state["w"])
    return found


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        (FedAvgM(beta=0.7, server_lr=0.3), lambda w: torch.optim.SGD([w], lr=0.3, momentum=0.7)),
        (FedAvgM(beta=0.0), lambda w: torch.optim.SGD([w], lr=1.0)),
        (
            FedAdagrad(server_lr=0.3, tau=0.01),
            lambda w: torch.optim.Adagrad([w], lr=0.3, eps=0.01, initial_accumulator_value=0.01**2),
        ),
        (
            FedAdam(server_lr=0.3, beta1=0.0, beta2=0.0, tau=0.01),
            lambda w: torch.optim.Adam([w], lr=0.3, betas=(0.0, 0.0), eps=0.01),
        ),
    ],
    ids=["momentum", "sgd", "adagrad", "adam without memory"],
)
def test_the_server_is_torchs_optimizer_with_the_update_for_a_gradient(
    task: Task, updates: Tensor, method: ServerStep, optimizer: Any
) -> None:
    w = context(task).x0.clone().requires_grad_()
    descends = optimizer(w)
    for delta, found in zip(updates, servers(method, task, updates), strict=True):
        w.grad = -delta
        descends.step()
        torch.testing.assert_close(found, w.detach(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [FedYogi, FedAdam])
def test_under_a_constant_update_memories_are_geometric_series(task: Task, kind: Any) -> None:
    """m_t = (1 - beta1^t) D. Adam's v_t = beta2^t tau^2 + (1 - beta2^t) D^2; Yogi's grows by (1 - beta2) D^2."""
    delta, beta1, beta2, tau, lr = torch.linspace(0.1, 0.6, D).double(), 0.8, 0.95, 0.02, 0.4
    method = kind(beta1=beta1, beta2=beta2, tau=tau, server_lr=lr)
    w = context(task).x0
    for t, found in enumerate(servers(method, task, delta.expand(6, D)), start=1):
        v = beta2**t * tau**2 + (1 - beta2**t) * delta**2
        if kind is FedYogi:  # v stays below D^2 for so few rounds
            v = tau**2 + t * (1 - beta2) * delta**2
        w = w + lr * (1 - beta1**t) * delta / (v.sqrt() + tau)
        torch.testing.assert_close(found, w, rtol=0, atol=1e-13)


def test_yogi_forgets_slowly_and_adam_at_once(task: Task) -> None:
    """After one large update and then none, Adam's v shrinks by beta2 a round, and Yogi's not at all."""
    ctx, large, none = context(task), torch.full((D,), 10.0).double(), torch.zeros(D).double()
    for method, factor in ((FedYogi(beta2=0.9), 1.0), (FedAdam(beta2=0.9), 0.9)):
        before = method.moved(ServerView(method.server_start(ctx), ctx), large)
        after = method.moved(ServerView(before, ctx), none)
        torch.testing.assert_close(after["v"], factor * before["v"])


def test_coordinates_move_alike_where_tau_is_small(task: Task) -> None:
    """The first step of FedAdam is server_lr (1 - beta1) / sqrt(1 - beta2) in all coordinates, as tau goes to 0."""
    delta = torch.logspace(-3, 2, D).double()
    method = FedAdam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=1e-12)
    (w,) = servers(method, task, delta[None])
    torch.testing.assert_close(w - context(task).x0, torch.full((D,), 0.1 * 0.1 / 0.1).double())


@pytest.mark.few(1)
@pytest.mark.parametrize("weighted", [True, False])
def test_a_server_without_momentum_is_fedavg(data: FederatedData, linear: Task, weighted: bool) -> None:
    common: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3, "weighted": weighted}
    how: dict[str, Any] = {"rounds": 4, "cohort": 3, "mode": "vmap", "stragglers": 0.5}
    one, other = (simulate(linear, data, m, **how) for m in (FedAvgM(**common, beta=0.0), FedAvg(**common)))
    for ours, theirs in zip(one.shared().parameters(), other.shared().parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_robust_mean_may_come_before_the_servers_step(data: FederatedData, linear: Task, kind: Any) -> None:
    """The first step is made of the median of the updates, which plain FedAvg takes as it is."""
    common: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": None, "weighted": False}
    how: dict[str, Any] = {"rounds": 1, "mode": "vmap", "aggregator": CoordinateMedian()}
    median, stepped = (
        nn.utils.parameters_to_vector(simulate(linear, data, m, **how).shared().parameters()).detach()
        for m in (FedAvg(**common), kind(**common))
    )
    method, ctx = kind(**common), Context(0, 0, 7, linear.layout, linear.start())
    expected = method.moved(ServerView(method.server_start(ctx), ctx), median - linear.start())["w"]
    torch.testing.assert_close(stepped, expected, rtol=0, atol=1e-12)
