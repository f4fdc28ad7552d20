"""Momentum is that of torch's SGD, with a new optimizer in every round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import descant as dc
from descant.methods import FLAME, Ditto, FedAvg, Local, LpProj, Method, PFedMe

ROUNDS, STEPS, LR = 3, 4, 0.2


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)])
def test_local_training_is_torchs_own(data: dc.FederatedData, mlp: dc.Task, mode: Any) -> None:
    method = Local(lr=LR, steps=STEPS, batch=None, momentum=0.6, weight_decay=0.01)
    run = dc.simulate(mlp, data, method, rounds=ROUNDS, mode=mode)
    for k in range(len(data)):
        model = mlp.module(mlp.start(), torch.empty(0, dtype=torch.float64))
        inputs, targets = data.train.client(k)
        for _ in range(ROUNDS):
            optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.6, weight_decay=0.01)
            for _ in range(STEPS):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
        for ours, theirs in zip(run.personal(k).parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_the_default_work_has_momentum_too(data: dc.FederatedData, linear: dc.Task) -> None:
    runs = [dc.simulate(linear, data, Local(momentum=m, batch=2), rounds=1) for m in (0.0, 0.6)]
    plain, moving = (run.personal(4).weight for run in runs)  # 13 examples: seven minibatches
    assert not torch.allclose(plain, moving, atol=1e-3)


def test_a_rule_that_stops_the_work_does_not_stop_momentum(data: dc.FederatedData, linear: dc.Task) -> None:
    for method in (PFedMe(nu=1e-6, lam=0.5, cap=5), FLAME(eps=1e-8, cap=5, lr=0.1)):
        moving = type(method)(**{**vars(method), "momentum": 0.9})
        weights = [dc.simulate(linear, data, m, rounds=1).personal(4).weight for m in (method, moving)]
        assert not torch.allclose(*weights, atol=1e-3), method.name


METHODS = [
    FedAvg(steps=STEPS),
    Ditto(steps=STEPS),
    PFedMe(steps=STEPS, lam=0.5),
    LpProj(steps=STEPS, dim=3),
    FLAME(steps=STEPS, batch=None),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
def test_a_single_step_has_no_momentum_and_several_have(
    data: dc.FederatedData, linear: dc.Task, method: Method
) -> None:
    def after(**changes: Any) -> list[torch.Tensor]:
        changed = type(method)(**{**vars(method), **changes})
        run = dc.simulate(linear, data, changed, rounds=2)
        return [p.detach() for p in run.personal(4).parameters()]

    for plain, moving in zip(after(steps=1), after(steps=1, momentum=0.9), strict=True):
        torch.testing.assert_close(plain, moving, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(after()[0], after(momentum=0.9)[0], atol=1e-4)
