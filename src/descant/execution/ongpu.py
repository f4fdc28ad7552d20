"""How to execute a run on a GPU: how many clients fit its memory, and which program is the fastest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from descant.data import FederatedData
from descant.execution.base import Execution
from descant.execution.compiled import Compile, Graphed
from descant.execution.convolutions import can_unfold, unfolded
from descant.execution.device import free_memory
from descant.execution.memory import Choice
from descant.methods import Work
from descant.task import Task

Ways = dict[str, Callable[[], Compile]]  # what makes an execution, by name
Timed = Callable[[Execution, int], float]  # the seconds of a step for one of so many clients

UNFOLDED = "compile with unfolded convolutions"
_TRIED = 16  # clients that memory is measured with
_SHARE = 0.5  # of the free memory, for the clients at work; what they hold between rounds needs some, too
_COPIES = 8  # of a model that a round of a method may hold at once, beside those of a step
_PATIENCE = 20.0  # seconds: a model that takes longer to compile is not compiled in yet another way
_WORTH = 10.0  # seconds: a run whose uncompiled steps would take longer gains by compiling


def fitting(execution: Execution, data: FederatedData, work: Work, clients: int, timed: Timed) -> int:
    """How many of `clients` fit the memory at once, from what a step of a few takes; groups of about one size."""
    device, task, tried = data.train.inputs.device, execution.task, min(clients, _TRIED)
    while True:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        try:
            timed(execution, tried)
            break
        except torch.OutOfMemoryError:
            if tried == 1:
                raise
            tried //= 2
    taken = (torch.cuda.max_memory_allocated(device) - before) / tried
    each = taken + _COPIES * task.dim * task.dtype.itemsize
    most = max(1, int(_SHARE * free_memory(device) / each))
    groups = -(-clients // most)
    return -(-clients // groups)


def ways(vmapped: Graphed, clients: int, mixes: bool) -> Ways:
    """The ways to execute that "auto" chooses among on a GPU, by name."""
    task = vmapped.task
    found: Ways = {"vmap": lambda: vmapped, "compile": lambda: Compile(task, clients)}
    if not mixes and any(can_unfold(module) for module in task.model.modules()):
        found[UNFOLDED] = lambda: unfolding(task, clients)
    return found


def unfolding(task: Task, clients: int) -> Compile:
    """Compiled programs in which convolutions are matrix products."""
    execution = Compile(unfolded(task), clients)
    execution.unfolded = True
    return execution


def fastest(ways: Ways, clients: int, steps: int, trained: int, timed: Timed) -> Choice:
    """The fastest way to have clients trained `trained` times for so many steps, `clients` at once."""
    plain = ways["vmap"]()
    seconds, notes, patience = {"vmap": timed(plain, clients)}, list[str](), _PATIENCE
    if steps * trained * seconds["vmap"] > _WORTH:
        for name, make in ways.items():
            if name == "vmap" or patience < 0:
                continue
            execution, began = make(), perf_counter()
            try:
                took = timed(execution, clients)
            except torch.OutOfMemoryError:  # what is unfolded takes more room
                continue
            patience -= perf_counter() - began
            if not execution.notes:
                seconds[name] = took
            notes += execution.notes
    best = min(seconds, key=seconds.__getitem__)
    measured = ", ".join(f"{name} {1e6 * value:.3g}" for name, value in seconds.items())
    return Choice(best, f"µs a step of one client: {measured}", notes)
