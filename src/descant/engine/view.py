"""The view that a method has of its K clients: their data, and the loop that runs its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from descant.context import Context
from descant.data import FederatedData
from descant.engine.cohort import finished_share
from descant.engine.measure import measure
from descant.execution import Compile, Execution
from descant.execution.base import SingleExampleError
from descant.execution.batches import Rows, Schedule
from descant.execution.phases import Phase, phases
from descant.execution.steps import heavy_ball, run_step
from descant.methods import Work
from descant.methods.base import Step, X
from descant.task import Batch, Layout


@dataclass(frozen=True)
class Setting:
    """What every view of a run shares."""

    execution: Execution
    data: FederatedData
    stragglers: float = 0.0
    drop_last: bool = False

    def names(self, clients: Tensor) -> list[str]:
        """The names of clients, in quotes."""
        return [f"'{self.data.clients[place]}'" for place in self.data.places(clients).tolist()]


class View:
    """K clients in one round, for a method (`descant.methods.LocalView`).

    It owns what methods leave out: masks, step counts that differ by client, minibatches, running statistics, and
    the count of gradients.
    """

    def __init__(
        self, setting: Setting, ctx: Context, clients: Tensor, buffers: dict[str, Tensor], start: Tensor
    ) -> None:
        self.setting, self.ctx, self.clients, self.start = setting, ctx, clients, start
        self.round, self.seed, self.coin = ctx.round, ctx.seed, ctx.coin
        self.layout: Layout = ctx.layout
        self.buffers = buffers  # model -> running statistics [K, b]
        self.share = finished_share(self.seed, self.round, clients, setting.stragglers)
        self.n = self._rows("train").sizes
        self.largest = setting.data.train.largest
        self.evaluations = torch.zeros_like(clients)  # minibatch gradients [K]
        self.examples = torch.zeros_like(clients)  # example gradients [K]
        self.scored = torch.zeros_like(clients)  # example losses [K]
        self.figures: dict[str, Tensor] = {}

    def run(self, step: Step, x: X, *rows: Tensor, work: Work, role: str, draws: int = 1) -> X:
        if work.momentum:
            assert isinstance(x, Tensor), "a step on several tensors keeps its own momentum"
            moving, resting = partial(heavy_ball, step, work.momentum), replace(work, momentum=0.0)
            return self.run(moving, (x, torch.zeros_like(x)), *rows, work=resting, role=role, draws=draws)[0]
        roles = [role, *(f"{role}#{i}" for i in range(1, draws))]
        steps = self._schedule(work, role, self.clients, self.share).steps
        model = role.split("/")[0]
        state, until = (x, self.statistics(model), torch.zeros_like(steps, dtype=torch.bool)), False
        with torch.no_grad():
            for phase in phases(steps, self.setting.execution.width):
                state, until = self._run_phase(phase, step, state, rows, steps, work, roles)
        x, statistics, met = state
        if until:
            self.record("capped", ~met)
        if statistics.shape[1]:
            self.buffers[model] = statistics
        return x

    def _run_phase(
        self,
        phase: Phase,
        step: Step,
        state: tuple[Any, Tensor, Tensor],
        rows: tuple[Tensor, ...],
        steps: Tensor,
        work: Work,
        roles: list[str],
    ) -> tuple[tuple[Any, Tensor, Tensor], bool]:
        """The steps of a phase on its clients: their x, their running statistics and whether they have met the
        rule after it; and whether the step has such a rule (`Until`)."""
        (x, statistics, met), along = phase.take(state), phase.take(rows)
        schedules = [self._schedule(work, role, phase.take(self.clients), phase.take(self.share)) for role in roles]
        left = torch.where(phase.real, phase.take(steps), 0)
        taken, gradients, until = torch.zeros_like(left), (0,) * len(roles), False
        for s in range(phase.begin, phase.end):
            active = (left > s) & ~met
            if until and not active.any():
                break
            sources = tuple(schedule.at(s) for schedule in schedules)
            try:
                stepped = run_step(step, self.setting.execution, x, statistics, sources, active, along)
            except SingleExampleError as error:
                guilty = phase.take(self.clients)[error.rows]
                raise SingleExampleError(guilty.tolist(), self.setting.names(guilty)) from error
            x, statistics, gradients = stepped.x, stepped.statistics, stepped.gradients
            taken += active
            if stepped.met is not None:
                until, met = True, met | stepped.met
        for schedule, calls in zip(schedules, gradients, strict=True):
            seen = schedule.examples(phase.begin + taken) - schedule.examples(torch.full_like(taken, phase.begin))
            self.evaluations = phase.put(self.evaluations, phase.take(self.evaluations) + calls * taken)
            self.examples = phase.put(self.examples, phase.take(self.examples) + calls * seen)
        return phase.put(state, (x, statistics, met)), until

    def part(self, name: str) -> Batch:
        rows = self._rows(name)
        return rows.all(torch.zeros_like(self.clients), int(rows.sizes.max()))

    def losses(self, x: Tensor, part: str = "train") -> Tensor:
        rows = self._rows(part)
        self.scored = self.scored + rows.sizes
        return measure(self.setting.execution, x, self.statistics("shared"), rows)[0].to(x.dtype)

    def record(self, name: str, values: Tensor) -> None:
        self.figures[name] = self.figures.get(name, torch.zeros_like(values, dtype=torch.float64)) + values

    def _rows(self, part: str) -> Rows:
        return Rows(self.setting.data.part(part), self.clients, self.setting.data.places(self.clients))

    def _schedule(self, work: Work, role: str, clients: Tensor, share: Tensor) -> Schedule:
        rows = Rows(self.setting.data.train, clients, self.setting.data.places(clients))
        address = (self.seed, role, self.round)
        execution, drop_last = self.setting.execution, self.setting.drop_last
        return Schedule(rows, work, share, address, drop_last, execution.task.draws, isinstance(execution, Compile))

    def statistics(self, model: str) -> Tensor:
        """The running statistics [K, b] of a model, or of the only one there is."""
        if model in self.buffers:
            return self.buffers[model]
        return next(iter(self.buffers.values()))
