"""The view that a method has of its K clients: their data, and the loop that runs its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from descant.data import FederatedData
from descant.engine.batches import Rows, Schedule
from descant.engine.cohort import finished_share
from descant.engine.measure import measure
from descant.methods import Until, Work
from descant.methods.base import Step, X
from descant.task import Batch, Execution, Layout, Objective


@dataclass(frozen=True)
class Setting:
    """What every view of a run shares."""

    execution: Execution
    data: FederatedData
    seed: int
    stragglers: float = 0.0
    drop_last: bool = False


class View:
    """K clients in one round, for a method (`descant.methods.LocalView`).

    It owns what methods leave out: masks, step counts that differ by client, minibatches, running statistics, and
    the count of gradients.
    """

    def __init__(
        self, setting: Setting, clients: Tensor, round: int, coin: float, buffers: dict[str, Tensor]
    ) -> None:
        self.setting, self.clients, self.round, self.coin = setting, clients, round, coin
        self.seed = setting.seed
        self.layout: Layout = setting.execution.task.layout
        self.buffers = buffers  # model -> running statistics [K, b]
        self.share = finished_share(setting.seed, round, clients, setting.stragglers)
        self.n = self._rows("train").sizes
        self.evaluations = torch.zeros_like(clients)  # minibatch gradients [K]
        self.examples = torch.zeros_like(clients)  # example gradients [K]
        self.figures: dict[str, Tensor] = {}

    def run(self, step: Step, x: X, *rows: Tensor, work: Work, role: str, draws: int = 1) -> X:
        model = role.split("/")[0]
        names = [role, *(f"{role}#{i}" for i in range(1, draws))]
        schedules = [self._schedule(work, name) for name in names]
        steps = schedules[0].steps
        met = torch.zeros_like(steps, dtype=torch.bool)
        everyone, until = int(steps.min()), False  # for how long all clients are at work
        for s in range(len(schedules[0])):
            active = (steps > s) & ~met
            if until and not active.any():
                break
            grad = _Gradient(self, model, [schedule[s] for schedule in schedules], active)
            new = step(x, grad, *rows)
            if isinstance(new, Until):
                met = met | (active & new.met)  # what a finished client computes carries no meaning
                active = active & ~met
                until, new = True, new.x
            grad.commit(active)
            x = new if s < everyone and not until else _keep(active, new, x)
        if until:
            self.record("capped", ~met)
        return x

    def part(self, name: str) -> Batch:
        return self._rows(name).all(torch.zeros_like(self.clients))

    def losses(self, x: Tensor, part: str = "train") -> Tensor:
        return measure(self.setting.execution, x, self.statistics("shared"), self._rows(part))[0].to(x.dtype)

    def record(self, name: str, values: Tensor) -> None:
        self.figures[name] = self.figures.get(name, torch.zeros_like(values, dtype=torch.float64)) + values

    def _rows(self, part: str) -> Rows:
        return Rows(self.setting.data.part(part), self.clients)

    def _schedule(self, work: Work, role: str) -> Schedule:
        address = (self.seed, role, self.round)
        return Schedule(self._rows("train"), work, self.share, address, self.setting.drop_last)

    def statistics(self, model: str) -> Tensor:
        """The running statistics [K, b] of a model, or of the only one there is."""
        if model in self.buffers:
            return self.buffers[model]
        return next(iter(self.buffers.values()))


class _Gradient:
    """The gradients at one step (`descant.methods.Gradient`)."""

    def __init__(self, local: View, model: str, batches: list[Batch], active: Tensor) -> None:
        self.local, self.model, self.batches, self.active = local, model, batches, active
        self.statistics: Tensor | None = None

    def __call__(
        self, x: Tensor, /, *rows: Tensor, objective: Objective | None = None, draw: int = 0
    ) -> Tensor:
        local, batch = self.local, self.batches[draw]
        execution = local.setting.execution
        before = local.statistics(self.model)
        of = objective or execution.task.objective
        gradients, self.statistics = execution.grads(x, before, batch, self.active, of, rows)
        local.evaluations += self.active
        local.examples += self.active * batch.mask.sum(1)
        return gradients

    def commit(self, moved: Tensor) -> None:
        """Keep the running statistics of the clients that took this step."""
        if self.statistics is not None and self.statistics.shape[1]:
            before = self.local.statistics(self.model)
            self.local.buffers[self.model] = torch.where(moved[:, None], self.statistics, before)


def _keep(active: Tensor, new: Any, old: Any) -> Any:
    """The new rows of active clients, the old rows of the others."""
    if isinstance(new, tuple):
        return tuple(_keep(active, n, o) for n, o in zip(new, old, strict=True))
    return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)
