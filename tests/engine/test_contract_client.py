"""The contract of a method carries clients that draw twice, penalise, fine-tune and share layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task
from descant.context import Context
from descant.execution.batches import Rows, Schedule
from descant.methods import (
    Aggregate,
    FedAvg,
    Gradient,
    Layout,
    Local,
    LocalView,
    Messages,
    Method,
    PerClient,
    Tree,
    Work,
)
from descant.task import Batch, Predict
from tests import held
from tests.engine.points import close

LR = 0.1


@dataclass(frozen=True, kw_only=True)
class Toy(Method):
    """Clients that train a model of their own by `step`, and send nothing."""

    name: ClassVar[str] = "toy"
    paper: ClassVar[str] = "none"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True
    work: ClassVar[Work] = Work(steps=3)
    draws: ClassVar[int] = 1

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "anchor": local.start}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        rows = (state["anchor"],)
        v = local.run(self.step, state["v"], *rows, work=self.work, role="personal", draws=self.draws)
        return {}, state | {"v": v}

    def step(self, x: Tensor, grad: Gradient, anchor: Tensor) -> Tensor:
        return x - LR * grad(x)

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]


class LookAhead(Toy):
    """Per-FedAvg, first order: the gradient on one minibatch, where a step on another one leads."""

    work: ClassVar[Work] = Work(steps=4, batch=2)
    draws: ClassVar[int] = 2

    def step(self, x: Tensor, grad: Gradient, anchor: Tensor) -> Tensor:
        return x - LR * grad(x - 0.5 * grad(x), draw=1)


def test_a_step_may_draw_two_minibatches(run: Any, point: Task, points: FederatedData) -> None:
    done = run(LookAhead(), task=point, data=points, rounds=1)
    rows = Rows(points.train, torch.arange(4))
    everything = torch.ones(4, dtype=torch.float64)
    first, second = (
        Schedule(rows, LookAhead.work, everything, (5, role, 1)) for role in ("personal", "personal#1")
    )
    x, differed = point.start().expand(4, -1).clone(), False
    for s in range(4):
        for k in range(4):
            a, b = (schedule[s].targets[k][schedule[s].mask[k]].mean(0) for schedule in (first, second))
            differed |= not torch.equal(a, b)
            ahead = x[k] - 0.5 * (x[k] - a)
            x[k] = x[k] - LR * (ahead - b)
    assert differed
    close(held.personal(done), x)
    assert done.history.spent[1]["gradients"].tolist() == [8] * 4


class Elastic(Toy):
    """EWC-like: the Fisher information is the squared gradient at the anchor, and weighs the pull back to it."""

    def step(self, x: Tensor, grad: Gradient, anchor: Tensor) -> Tensor:
        fisher = grad(anchor).square()
        return x - LR * (grad(x) + 2.0 * fisher * (x - anchor))


def test_an_elastic_penalty(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    done = run(Elastic(), task=point, data=points, rounds=2)
    anchor = point.start()
    x = anchor.expand(4, -1)
    for _ in range(6):
        x = x - LR * (x - means + 2.0 * (anchor - means).square() * (x - anchor))
    close(held.personal(done), x)
    assert done.history.spent[2]["gradients"].tolist() == [12] * 4  # two gradients a step, and both are counted
    assert done.history.spent[2]["examples"].tolist() == [12 * n for n in (3, 1, 5, 2)]


def skl(predict: Predict, x: Tensor, batch: Batch, /, *rows: Tensor) -> Tensor:
    """The symmetric Kullback-Leibler divergence between the predictions of x and those of a row."""
    mine, theirs = predict(x).log_softmax(-1), predict(rows[0]).log_softmax(-1)
    divergence = ((mine.exp() - theirs.exp()) * (mine - theirs)).sum(-1)
    return torch.where(batch.mask, divergence, 0).sum() / batch.mask.sum()


class Distilled(Toy):
    """SKL-like: an objective of the method's own, that needs the predictions of two models."""

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "anchor": -local.start}

    def step(self, x: Tensor, grad: Gradient, anchor: Tensor) -> Tensor:
        return x - LR * grad(x, anchor, objective=skl)


@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_an_objective_of_the_methods_own(run: Any, data: FederatedData, mode: str) -> None:
    """The gradient in the scores z of x, with p and q the two predictions: p (l - <p, l>) + p - q, l = log p/q."""
    torch.manual_seed(3)
    task = Task(nn.Linear(4, 3).double())
    done = run(Distilled(), task=task, rounds=1, mode=mode)
    for k in range(7):
        X = data.train.client(k)[0].numpy()
        x, anchor = task.start().numpy(), -task.start().numpy()
        q = _softmax(X @ anchor[:12].reshape(3, 4).T + anchor[12:])
        for _ in range(3):
            p = _softmax(X @ x[:12].reshape(3, 4).T + x[12:])
            ratio = np.log(p / q)
            G = (p * (ratio - (p * ratio).sum(1, keepdims=True)) + p - q) / len(X)
            x = x - LR * np.concatenate([(G.T @ X).ravel(), G.sum(0)])
        assert np.abs(held.personal(done)[k].numpy() - x).max() <= 1e-12


def _softmax(z: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    e = np.exp(z)
    result: np.ndarray[Any, np.dtype[np.float64]] = e / e.sum(1, keepdims=True)
    return result


@dataclass(frozen=True, kw_only=True)
class FineTuned(FedAvg):
    """FedAvg whose clients fine-tune the shared model before they deploy it."""

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    personalizes: ClassVar[bool] = True
    tune: Work = field(default_factory=lambda: Work(steps=3))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return local.run(self.step, down["w"], down["w"], work=self.tune, role="personal")


def test_a_client_may_train_what_it_deploys(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    method = FineTuned(lr=LR, steps=2, batch=2)
    done = run(method, task=point, data=points, cohort=2, evaluate=1)
    w = held.by_server(done)["w"]
    tuned = means + (1 - LR) ** 3 * (w - means)
    close(held.personal(done), tuned)
    for k in range(4):
        close(done.personal(k, round="last").at.detach(), tuned[k])
    close(done.shared(round="last").at.detach(), w)
    # Looking at the models trains nothing, and what looking costs is not the round's.
    plain = run(FedAvg(lr=LR, steps=2, batch=2), task=point, data=points, cohort=2)
    assert torch.equal(w, held.by_server(plain)["w"])
    assert done.history.spent[3]["gradients"].tolist() == plain.history.spent[3]["gradients"].tolist()


@pytest.mark.parametrize(("drop_last", "steps"), [(False, 3), (True, 2)])
def test_fine_tuning_drops_the_short_minibatch_where_training_does(
    run: Any, point: Task, drop_last: bool, steps: int
) -> None:
    """Five equal examples in minibatches of two: every one has the same gradient, so that steps can be counted."""
    five = {"train": (torch.zeros(5, 1).double(), torch.ones(5, 2).double())}
    data = FederatedData.from_arrays([five])
    method = FineTuned(lr=LR, steps=1, batch=2, tune=Work(epochs=1, batch=2))
    done = run(method, task=point, data=data, rounds=1, drop_last=drop_last)
    expected = 1 + (1 - LR) ** (1 + steps) * (point.start() - 1)
    close(held.personal(done), expected[None])


@dataclass(frozen=True, kw_only=True)
class SharedHead(Local):
    """LG-FedAvg-like: of its own model a client shares the parameters in `head`."""

    head: tuple[str, ...] = ("2.weight", "2.bias")

    def where(self, layout: Layout) -> Tensor:
        return torch.cat([torch.arange(s.start, s.stop) for s in map(layout.slices.get, self.head) if s])

    def server_start(self, ctx: Context) -> Tree:
        return {"head": ctx.x0[self.where(ctx.layout)]}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"head": server["head"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        start = self.personal(down, state, local)
        v = local.run(self.step, start, work=self.work, role="personal")
        return {"head": v[:, self.where(local.layout)]}, {"v": v}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return aggregate({"head": messages["head"]})

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"].index_copy(1, self.where(local.layout), down["head"])


def test_a_method_may_share_some_layers(run: Any, task: Task) -> None:
    """Of 43 numbers the last layer's 18 travel; the others stay what local training makes of them."""
    method, alone = SharedHead(lr=LR, steps=4, batch=3), Local(lr=LR, steps=4, batch=3)
    done, local = run(method, rounds=1), held.personal(run(alone, rounds=1))
    close(held.by_clients(done)["v"], local)  # the first round starts alike
    close(held.by_server(done)["head"], local[:, 25:].mean(0))
    close(held.personal(done), torch.cat([local[:, :25], local[:, 25:].mean(0).expand(7, -1)], 1))
    rows = run(method, rounds=2).history.rounds
    assert [row["bytes_up"] for row in rows] == [7 * 18 * 8] * 2
    assert [row["bytes_down"] for row in rows] == [7 * 18 * 8] * 2


def test_a_client_sees_its_parts_and_its_losses(view: Any, data: FederatedData, task: Task) -> None:
    local = view(data, clients=[4, 1])
    assert local.n.tolist() == [13, 1]
    train, valid = local.part("train"), local.part("valid")
    assert train.mask.sum(1).tolist() == [13, 1] and valid.mask.sum(1).tolist() == [2, 2]
    assert torch.equal(train.inputs[0], data.train.client(4)[0])
    x = torch.stack([task.start(), 2 * task.start()])
    for part in ("train", "valid", "test"):
        for k, client in enumerate((4, 1)):
            inputs, targets = data.part(part).client(client)
            expected = nn.functional.cross_entropy(task.module(x[k])(inputs), targets).detach()
            assert float(local.losses(x, part)[k]) == pytest.approx(float(expected), abs=1e-12)
