"""Running statistics belong to a model: which ones training begins with, and which a loss is measured with."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.context import Context
from descant.engine.surroundings import Surroundings
from descant.engine.view import View
from descant.execution import Vmap
from descant.methods import FedAvg, Gradient, Local, LocalView, Tree, Work
from tests import held

WORK = Work(steps=3)
LR = 0.2


def task(buffers: Any = "shared") -> dc.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
    return dc.Task(model, buffers=buffers)


def data() -> dc.FederatedData:
    """Inputs far from where running statistics start."""
    g = torch.Generator().manual_seed(1)
    clients = [
        (3 * torch.randn(n, 4, generator=g).double() + 5 + k, torch.arange(n) % 3) for k, n in enumerate((7, 10, 6))
    ]
    return dc.FederatedData.from_arrays(clients, classes=3)


def trained(start: nn.Module, examples: tuple[Tensor, Tensor], steps: int) -> nn.Module:
    own = deepcopy(start).train()
    optimizer = torch.optim.SGD(own.parameters(), lr=LR)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(own(examples[0]), examples[1]).backward()
        optimizer.step()
    return own.eval()


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@dataclass(frozen=True, kw_only=True)
class FineTuned(FedAvg):
    """FedAvg whose clients fine-tune the shared model before they deploy it."""

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    personalizes: ClassVar[bool] = True

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return local.run(self.step, down["w"], down["w"], work=WORK, role="personal")


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("cohort", [3, 1])
def test_fine_tuning_begins_with_the_statistics_of_the_shared_model(mode: Any, cohort: int) -> None:
    federation = data()
    method = FineTuned(lr=LR, steps=4, batch=None)
    run = dc.simulate(task(), federation, method, rounds=5, cohort=cohort, mode=mode)
    for k in range(3):
        expected = trained(run.shared(round="last"), federation.train.client(k), WORK.steps or 0)
        got = run.personal(k, round="last")
        for name, value in expected.state_dict().items():
            if "num_batches" not in name:
                close(got.state_dict()[name], value)


@dataclass(frozen=True, kw_only=True)
class Restarted(FedAvg):
    """FedAvg beside a personal model that each round begins anew from the w that arrived."""

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    personalizes: ClassVar[bool] = True

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        v = local.run(self.step, down["w"], down["w"], work=WORK, role="personal", start="shared")
        return super().client(down, {}, local)[0], {"v": v}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]


def test_a_model_may_begin_with_the_statistics_of_another() -> None:
    federation = data()
    method = Restarted(lr=LR, steps=4, batch=None)
    before = dc.simulate(task(), federation, method, rounds=2, mode="vmap")
    after = dc.simulate(task(), federation, method, rounds=3, mode="vmap")
    for k in range(3):
        expected = trained(before.shared(round="last"), federation.train.client(k), WORK.steps or 0)
        close(after.personal(k, round="last")[1].running_mean, expected[1].running_mean)  # type: ignore[index]
        close(after.personal(k, round="last")[1].running_var, expected[1].running_var)  # type: ignore[index]


@dataclass(frozen=True, kw_only=True)
class ThreeModels(Local):
    """Three models a client, each trained for itself."""

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal", "teacher")

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "teacher": local.start, "student": local.start}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        again = Work(steps=2)
        student = local.run(self.step, state["student"], work=self.work, role="shared")
        v = local.run(self.step, state["v"], work=again, role="personal")
        teacher = local.run(self.faster, state["teacher"], work=self.work, role="teacher")
        return {}, {"v": v, "teacher": teacher, "student": student}

    def faster(self, x: Tensor, grad: Gradient) -> Tensor:
        return x - 2 * LR * self.slope(x, grad)


def test_every_model_that_is_trained_keeps_statistics_of_its_own() -> None:
    federation = data()
    run = dc.simulate(task(), federation, ThreeModels(lr=LR, steps=3, batch=None), rounds=2, mode="vmap")
    kept = held.by_clients(run)
    for k in range(3):
        layer = trained(task().model, federation.train.client(k), 6)[1]  # type: ignore[index]
        mean, var = layer.running_mean, layer.running_var
        close(kept["statistics.shared"][k], torch.cat([mean, var]))
        shorter = trained(task().model, federation.train.client(k), 4)[1]  # type: ignore[index]
        close(kept["statistics.personal"][k], torch.cat([shorter.running_mean, shorter.running_var]))
    assert not torch.allclose(kept["statistics.teacher"], kept["statistics.shared"])


def test_a_loss_is_measured_with_the_statistics_of_the_model_that_is_named() -> None:
    t, federation, who = task(), data(), torch.arange(3)
    ones = torch.ones(3, 12, dtype=torch.float64)
    ctx = Context(1, 5, len(federation), t.layout, t.start(), party=who)
    models = {"shared": ones, "personal": 2 * ones}
    local = View(Surroundings(Vmap(t, mixes=True), federation), ctx, who, models)
    x = t.start().repeat(3, 1)

    def losses(statistics: Tensor) -> Tensor:
        models = [t.module(x[k], statistics[k]) for k in range(3)]
        parts = [federation.train.client(k) for k in range(3)]
        found = [functional.cross_entropy(m(i), y) for m, (i, y) in zip(models, parts, strict=True)]
        return torch.stack(found).detach()

    close(local.losses(x), losses(ones))
    close(local.losses(x, model="personal"), losses(2 * ones))
    local.run(Local(lr=LR).step, x, work=WORK, role="personal/1")
    moved = local.buffers["personal"]
    assert not torch.allclose(moved, 2 * ones)
    close(local.losses(x), losses(moved))
    close(local.losses(x, model="shared"), losses(ones))
    with pytest.raises(ValueError, match="no model called 'teacher' is trained here, only shared, personal"):
        local.losses(x, model="teacher")
    assert torch.equal(local.scored, 4 * local.n), "what losses cost is counted"
