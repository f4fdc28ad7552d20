"""The view that a method has of its K clients: their data, and the loop that runs its steps."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.draws import seed_of
from descant.engine.measure import mean_loss
from descant.engine.surroundings import Surroundings, roles
from descant.errors import SettingError, unknown
from descant.execution.base import SingleExampleError
from descant.execution.batches import Rows, Schedule
from descant.execution.chance import run_watched
from descant.execution.phases import Phase, phases
from descant.execution.steps import optimized
from descant.execution.walk import Start
from descant.methods import SGD, ByRound, Momentum, Taken, Work
from descant.methods.base import Step, X
from descant.methods.schedules import in_round
from descant.mirrors import host, sent
from descant.task import Batch, Layout


class _Ran(NamedTuple):
    """A run of local steps, for whoever asks what it was; its figures are in the processor's memory."""

    role: str
    schedule: Schedule  # of all K clients
    draws: int
    steps: Tensor  # [K] that moved x
    met: Tensor  # [K] whether a rule ended them

    @property
    def finished(self) -> Tensor:
        return self.met | (self.schedule.steps == self.schedule.asked)


class View:
    """K clients in one round, for a method (`descant.methods.LocalView`).

    It owns what methods leave out: masks, step counts that differ by client, minibatches, running statistics, and
    the count of gradients.
    """

    def __init__(self, setting: Surroundings, ctx: Context, clients: Tensor, buffers: dict[str, Tensor]) -> None:
        self.setting, self.ctx, self.clients = setting, ctx, clients
        self.round, self.seed = ctx.round, ctx.seed
        self.layout: Layout = ctx.layout
        self.buffers = buffers  # model -> running statistics [K, b]
        self.n = setting.sizes(clients)
        self.largest = setting.data.train.largest
        # What was spent is counted in the processor's memory, and never in place.
        nothing = torch.zeros(len(clients), dtype=torch.int64)
        self.evaluations = nothing  # minibatch gradients [K]
        self.examples = nothing  # example gradients [K]
        self.scored = nothing  # examples whose loss was asked for [K]
        self.figures: dict[str, Tensor] = {}
        self.deploys = False  # whether the method makes the models that clients deploy (`Method.personal`)
        self.looked_at = False  # whether somebody will ask what the last run ended with
        self._ended: Tensor | tuple[Tensor, ...] | None = None
        self._runs: list[_Ran] = []

    def run(
        self, step: Step, x: X, *rows: Tensor, work: Work, role: str, draws: int = 1, start: str | None = None
    ) -> X:
        if not work.plain:
            moving, carried, along = self._optimized(step, x, rows, work)
            resting = replace(work, momentum=0.0, optimizer=SGD(), lr=None)
            done: Any = self.run(moving, carried, *along, work=resting, role=role, draws=draws, start=start)
            moved: X = done[0]
            return self._end(moved)
        model = role.split("/")[0]
        known = set(self.buffers) if self._loses(model, start) else {"shared", "personal", *self.buffers}
        if model not in known:
            raise SettingError(f"local.run(role='{role}'): {unknown('model of `trains`', model, known)}")
        schedules = [self._schedule(work, each, self.clients) for each in roles(role, draws)]
        steps = schedules[0].steps
        state, until = (x, self._first(model, start), schedules[0].counts.nobody, torch.zeros_like(steps)), False
        with torch.no_grad():
            for phase in phases(steps, self.setting.execution.width, self.clients.device, schedules[0].ends):
                here = schedules
                if phase.who is not None:
                    who = sent(phase.take(host(self.clients)), self.clients.device)
                    here = [self._schedule(work, each, who) for each in roles(role, draws)]
                state, until = self._run_phase(phase, step, state, rows, steps, here)
        x, statistics, met, walked = state
        schedules[0].release()
        ended = met.cpu() if until else torch.zeros_like(walked, dtype=torch.bool)
        self._runs.append(_Ran(role, schedules[0], draws, walked - ended.long(), ended))
        if until:
            self.record("capped", ~ended)
        if statistics.shape[1]:
            self.buffers[model] = statistics
        return self._end(x)

    def _loses(self, model: str, start: str | None) -> bool:
        """Whether running statistics of a model that a round trains would be kept nowhere.

        They need not be where clients deploy it, or where it is for the moment and says what it was made from.
        """
        kept = model in self.buffers or self.deploys or start is not None
        return not kept and any(bool(own.shape[1]) for own in self.buffers.values())

    def spare(self) -> View:
        """Another view of the same clients, for a call that is to leave no trace in this one."""
        other = copy(self)
        other.buffers, other.figures, other._runs = dict(self.buffers), dict(self.figures), list(self._runs)
        return other

    def _end(self, x: X) -> X:
        """What a run of steps ended with, remembered where it will be asked for; it holds memory."""
        if self.looked_at:
            self._ended = x
        return x

    @property
    def ended(self) -> Tensor | tuple[Tensor, ...] | None:
        return self._ended

    @property
    def last(self) -> str:
        """The model that was trained last in this round; before any was, the shared one."""
        return self._runs[-1].role.split("/")[0] if self._runs else "shared"

    def _optimized(
        self, step: Step, x: Any, rows: tuple[Tensor, ...], work: Work
    ) -> tuple[Step, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The step, its x and its rows where moves are made by the work's optimizer, at the rate of this round."""
        if not isinstance(x, Tensor):
            raise SettingError("a step on several tensors makes its own moves: give its work no optimizer")
        if work.lr is None and not isinstance(work.by, Momentum):
            raise SettingError(f"Work.lr is missing: {work.by.name} must know the rate that steps are written with")
        base, scaled = in_round(work.lr or 1.0, 1), isinstance(work.lr, ByRound)
        # A number of the step would be compiled into it, and every rate would make another program.
        scale = (x.new_full((len(x), 1), in_round(work.lr or 1.0, max(1, self.round)) / base),) if scaled else ()
        return partial(optimized, step, work.by, base, scaled), (x, *work.by.start(x)), (*scale, *rows)

    def _run_phase(
        self,
        phase: Phase,
        step: Step,
        state: tuple[Any, Tensor, Tensor, Tensor],
        rows: tuple[Tensor, ...],
        steps: Tensor,
        schedules: list[Schedule],
    ) -> tuple[tuple[Any, Tensor, Tensor, Tensor], bool]:
        """The steps of a phase on its clients: their x, their running statistics, whether they have met the rule
        and how many steps they took after it; and whether the step has such a rule (`Until`)."""
        (x, statistics, met, walked), along = phase.take(state), phase.take(rows)
        left = phase.take(steps)
        if phase.who is not None:
            left[phase.real :] = 0  # padding, which takes none
        try:
            done = run_watched(
                *(step, self.setting.execution, phase.begin, phase.end),
                Start(x, statistics, met, left, along, phase.alike),
                schedules,
            )
        except SingleExampleError as error:
            guilty = phase.take(self.clients)[error.rows]
            raise SingleExampleError(guilty.tolist(), self.setting.names(guilty)) from error
        for schedule, calls in zip(schedules, done.gradients, strict=True):
            seen = schedule.examples(phase.begin + done.taken)
            if phase.begin:
                seen = seen - schedule.examples(torch.full_like(done.taken, phase.begin))
            self.evaluations = phase.put(self.evaluations, phase.take(self.evaluations) + calls * done.taken)
            self.examples = phase.put(self.examples, phase.take(self.examples) + calls * seen)
        ended = met if done.met is None else done.met
        return phase.put(state, (done.x, done.statistics, ended, walked + done.taken)), done.met is not None

    def taken(self, role: str | None = None) -> Taken:
        steps, examples, finished = (torch.zeros_like(self.evaluations) for _ in range(3))
        finished = finished == 0
        for ran in self._runs:
            if role is None or ran.role == role or ran.role.startswith(f"{role}/"):
                steps, examples = steps + ran.steps, examples + ran.draws * ran.schedule.examples(ran.steps)
                finished = finished & ran.finished
        device = self.clients.device
        return Taken(*(found.to(device, non_blocking=True) for found in (steps, examples, finished)))

    @property
    def done(self) -> list[tuple[str, Work, int]]:
        """The runs of steps in this round: role, work and draws a step."""
        return [(ran.role, ran.schedule.work, ran.draws) for ran in self._runs]

    @property
    def worked(self) -> bool:
        """Whether any local steps were asked for."""
        return bool(self._runs)

    @property
    def finished(self) -> Tensor:
        """Whether [K] the clients have taken all the steps that the work behind their message asked for: that on
        the shared model, or, where none was trained, all. It is in the processor's memory."""
        shared = [ran for ran in self._runs if ran.role.split("/")[0] == "shared"]
        finished = torch.ones_like(self.evaluations, dtype=torch.bool)
        for ran in shared or self._runs:
            finished = finished & ran.finished
        return finished

    @cached_property
    def start(self) -> Tensor:
        x0 = self.ctx.x0
        if not self.setting.own_start:
            rows = x0.expand(len(self.clients), -1)
            return rows.clone() if len(rows) == 1 else rows  # which would lie in the memory of x0
        seeds = [seed_of(self.seed, "start", k) for k in host(self.clients).tolist()]
        return torch.stack([self.setting.execution.task.random_start(seed) for seed in seeds]).to(x0.device)

    @property
    def coin(self) -> float:
        return self.ctx.coin

    def part(self, name: str) -> Batch:
        rows = self._rows(name)
        return rows.all(torch.zeros_like(self.clients), int(rows.sizes.max()))

    def losses(self, x: Tensor, part: str = "train", model: str | None = None) -> Tensor:
        rows = self._rows(part)
        statistics = self.statistics(self.last) if model is None else self._of(model)
        self.scored = self.scored + rows.sizes
        return mean_loss(self.setting.execution, x, statistics, rows).to(x.dtype)

    def count(self, steps: Tensor) -> None:
        self.evaluations, self.examples = self.evaluations + steps.cpu(), self.examples + steps.cpu()

    def record(self, name: str, values: Tensor) -> None:
        self.figures[name] = self.figures.get(name, torch.zeros_like(values, dtype=torch.float64)) + values

    def _rows(self, part: str) -> Rows:
        return Rows(self.setting.data.part(part), self.clients, self.setting.data.places(self.clients))

    def _schedule(self, work: Work, role: str, clients: Tensor) -> Schedule:
        return self.setting.schedule(clients, work, (self.seed, role, self.round))

    def statistics(self, model: str) -> Tensor:
        """The running statistics [K, b] of a model, or of the only one there is."""
        if model in self.buffers:
            return self.buffers[model]
        return next(iter(self.buffers.values()))

    def _of(self, model: str) -> Tensor:
        if model not in self.buffers:
            raise SettingError(f"no model called '{model}' is trained here, only {', '.join(self.buffers)}")
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
