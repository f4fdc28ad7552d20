"""How to execute a run: measured once, on its own model, clients and minibatches."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from descant.data import FederatedData
from descant.engine.batches import Rows, Schedule
from descant.engine.steps import run_step
from descant.methods import Gradient, Method, Work
from descant.task import Compile, Execution, Loop, Mode, Task, Vmap, choose

_PROBED = 3  # examples that a model is tried on
_FEW = 8  # clients that the loop is timed on
_CLEARLY = 0.8  # of vmap's time: what another mode must stay below, so that noise does not choose
_WORTH = 60.0  # seconds of vmapped steps from which on compiling may win back its own time


def prepare(
    task: Task, data: FederatedData, method: Method, mode: Mode, *, clients: int, programs: int
) -> tuple[Execution, str]:
    """The execution for a run, and why.

    `clients` are processed at once; `programs` is how many times that happens in the run. "auto" times a step of
    the loop and of vmap, and of a compiled program where the run is long enough to win back its making, and takes
    another one than vmap where it is clearly faster; "compile" does without asking.
    """
    inputs, targets = data.train.client(int(data.train.sizes.argmax()))
    execution, why = choose(task, inputs[:_PROBED], targets[:_PROBED], mode)
    if not isinstance(execution, Vmap) or mode == "vmap":
        return execution, why
    if mode == "compile":
        if execution.mixes:
            return execution, "its batches must not be padded (BatchNorm), so vmap runs in the place of compile"
        return Compile(task, clients), why
    return _measure(execution, data, getattr(method, "work", Work(epochs=1, batch=64)), clients, programs)


def _measure(vmapped: Vmap, data: FederatedData, work: Work, clients: int, programs: int) -> tuple[Execution, str]:
    task = vmapped.task
    everyone = torch.arange(clients, device=data.train.inputs.device)
    few = everyone[:_FEW]
    schedule = _schedule(data, everyone, work)
    seconds: dict[Execution, float] = {vmapped: _seconds(_stepper(vmapped, schedule))}
    for loop in [Loop(task), *([Loop(task, channels_last=True)] if _has_convolutions(task) else [])]:
        seconds[loop] = _seconds(_stepper(loop, _schedule(data, few, work))) * clients / len(few)
    best = _fastest(vmapped, seconds)
    compiled = Compile(task, clients)
    # Compiling speeds up vmap by a few times at the most: where the loop is ahead by more, nothing is to be won.
    hopeless = vmapped.mixes or seconds[best] < seconds[vmapped] / 3
    if not hopeless and len(schedule) * programs * seconds[best] > _WORTH:
        seconds[compiled] = _seconds(_stepper(compiled, schedule))
        if compiled.notes:
            del seconds[compiled]
            vmapped.note(compiled.notes[0])
        best = _fastest(vmapped, seconds)
    timed = ", ".join(f"{_name(execution)} {1e3 * value:.3g}" for execution, value in seconds.items())
    return best, f"ms a step of {clients} clients: {timed}"


def _fastest(vmapped: Vmap, seconds: dict[Execution, float]) -> Execution:
    best = min(seconds, key=seconds.__getitem__)
    return best if seconds[best] < _CLEARLY * seconds[vmapped] else vmapped


def _descend(x: Tensor, grad: Gradient) -> Tensor:
    return x - 1e-3 * grad(x)


def _stepper(execution: Execution, schedule: Schedule) -> Callable[[], Any]:
    """A plain gradient step, like those that the run will take."""
    task, who = execution.task, schedule.rows.clients
    x = task.start().to(who.device).repeat(len(who), 1)
    statistics = task.buffer_start().to(who.device).repeat(len(who), 1)
    active = torch.ones_like(who, dtype=torch.bool)
    return lambda: run_step(_descend, execution, x, statistics, (schedule.at(0),), active, ())


def _schedule(data: FederatedData, who: Tensor, work: Work) -> Schedule:
    return Schedule(Rows(data.train, who), work, torch.ones(len(who), device=who.device), (0, "tuning", 0))


def _seconds(call: Callable[[], Any]) -> float:
    """The time of a call, the best of a few; the first one is not counted."""
    times = []
    with torch.no_grad():
        call()
        for _ in range(3):
            began = perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append(perf_counter() - began)
    return min(times)


def _has_convolutions(task: Task) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in task.model.modules())


def _name(execution: Execution) -> str:
    return "loop in channels_last" if getattr(execution, "channels_last", False) else execution.mode
