"""The view that a method has of its K clients: their data, and the loop that runs its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from descant.data import FederatedData
from descant.engine.cohort import finished_share
from descant.engine.measure import measure
from descant.execution import Compile, Execution
from descant.execution.base import SingleExampleError
from descant.execution.batches import Rows, Schedule
from descant.execution.phases import Phase, phases
from descant.execution.steps import heavy_ball, run_step
from descant.methods import Taken, Work
from descant.methods.base import Step, X
from descant.task import Batch, Layout


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
        self.scored = torch.zeros_like(clients)  # examples whose loss was asked for [K]
        self.figures: dict[str, Tensor] = {}
        self.deploys = False  # whether the method makes the models that clients deploy (`Method.personal`)
        self._taken: dict[str, Taken] = {}  # by role
        self._last = "shared"  # the model that was trained last

    def run(
        self, step: Step, x: X, *rows: Tensor, work: Work, role: str, draws: int = 1, start: str | None = None
    ) -> X:
        if work.momentum:
            assert isinstance(x, Tensor), "a step on several tensors keeps its own momentum"
            moving, resting = partial(heavy_ball, step, work.momentum), replace(work, momentum=0.0)
            carried = (x, torch.zeros_like(x))
            return self.run(moving, carried, *rows, work=resting, role=role, draws=draws, start=start)[0]
        roles = [role, *(f"{role}#{i}" for i in range(1, draws))]
        schedule = self._schedule(work, role, self.clients, self.share)
        steps = schedule.steps
        self._taken.setdefault(role, self._nothing())
        self._last = model = role.split("/")[0]
        state, until = (x, self._first(model, start), torch.zeros_like(steps, dtype=torch.bool)), False
        with torch.no_grad():
            for phase in phases(steps, self.setting.execution.width):
                state, until = self._run_phase(phase, step, state, rows, steps, work, roles)
        x, statistics, met = state
        finished = self._taken[role].finished & (met | (steps == schedule.asked))
        self._taken[role] = self._taken[role]._replace(finished=finished)
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
                guilty = phase.take(self.clients)[error.rows].tolist()
                raise SingleExampleError(guilty, [f"'{self.setting.data.clients[k]}'" for k in guilty]) from error
            x, statistics, gradients = stepped.x, stepped.statistics, stepped.gradients
            taken += active
            if stepped.met is not None:
                until, met = True, met | stepped.met
        moved = taken - (met & ~phase.take(state[2])).long() if until else taken
        took = self._taken[roles[0]]
        drawn = phase.take(took.examples)
        for schedule, calls in zip(schedules, gradients, strict=True):
            before = schedule.examples(torch.full_like(taken, phase.begin))
            seen = schedule.examples(phase.begin + taken) - before
            drawn = drawn + (schedule.examples(phase.begin + moved) - before if until else seen)
            self.evaluations = phase.put(self.evaluations, phase.take(self.evaluations) + calls * taken)
            self.examples = phase.put(self.examples, phase.take(self.examples) + calls * seen)
        walked, drawn = phase.put(took[:2], (phase.take(took.steps) + moved, drawn))
        self._taken[roles[0]] = Taken(walked, drawn, took.finished)
        return phase.put(state, (x, statistics, met)), until

    def _nothing(self) -> Taken:
        zero = torch.zeros_like(self.clients)
        return Taken(zero, zero, torch.ones_like(zero, dtype=torch.bool))

    def taken(self, role: str | None = None) -> Taken:
        total = self._nothing()
        for name, of in self._taken.items():
            if role is None or name == role or name.startswith(f"{role}/"):
                total = Taken(total.steps + of.steps, total.examples + of.examples, total.finished & of.finished)
        return total

    @property
    def finished(self) -> Tensor:
        """Whether [K] the clients have taken all the steps that their work asked for, over all runs."""
        return self.taken().finished

    def part(self, name: str) -> Batch:
        rows = self._rows(name)
        return rows.all(torch.zeros_like(self.clients), int(rows.sizes.max()))

    def losses(self, x: Tensor, part: str = "train", model: str | None = None) -> Tensor:
        rows, statistics = self._rows(part), self.statistics(self._last) if model is None else self._of(model)
        self.scored = self.scored + rows.sizes
        return measure(self.setting.execution, x, statistics, rows)[0].to(x.dtype)

    def record(self, name: str, values: Tensor) -> None:
        self.figures[name] = self.figures.get(name, torch.zeros_like(values, dtype=torch.float64)) + values

    def _rows(self, part: str) -> Rows:
        return Rows(self.setting.data.part(part), self.clients)

    def _schedule(self, work: Work, role: str, clients: Tensor, share: Tensor) -> Schedule:
        rows, address = Rows(self.setting.data.train, clients), (self.seed, role, self.round)
        execution, drop_last = self.setting.execution, self.setting.drop_last
        return Schedule(rows, work, share, address, drop_last, execution.task.draws, isinstance(execution, Compile))

    def statistics(self, model: str) -> Tensor:
        """The running statistics [K, b] of a model, or of the only one there is."""
        if model in self.buffers:
            return self.buffers[model]
        return next(iter(self.buffers.values()))

    def _of(self, model: str) -> Tensor:
        if model not in self.buffers:
            raise ValueError(f"no model called '{model}' is trained here, only {', '.join(self.buffers)}")
        return self.buffers[model]

    def _first(self, model: str, start: str | None) -> Tensor:
        """The running statistics [K, b] that the training of a model begins with.

        Where clients deploy a model that no round has trained, it is made from the shared one.
        """
        if start is not None:
            return self._of(start)
        own = self.statistics(model)
        if not self.deploys or not own.shape[1] or "shared" not in self.buffers:
            return own
        untouched = (own == self.setting.execution.task.buffer_start().to(own.device)).all(1)
        return torch.where(untouched[:, None], self.buffers["shared"], own)
