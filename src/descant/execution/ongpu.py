"""How to execute a run on a GPU: how many clients fit its memory, and which program is the fastest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor
from torch.utils._triton import has_triton

from descant.data import FederatedData
from descant.execution.base import Execution
from descant.execution.compiled import Compile, Graphed
from descant.execution.convolutions import can_be_direct, can_unfold, computed
from descant.execution.device import free_memory
from descant.execution.memory import Choice
from descant.execution.programs import reason
from descant.methods import Work
from descant.task import Task

Ways = dict[str, Callable[[], Compile]]  # what makes an execution, by name
Timed = Callable[[Execution, int], float]  # the seconds of a step for one of so many clients
Slopes = Callable[[Task, int], Tensor]  # the gradients [K, d] of so many clients, uncompiled

AS_IT_IS, DIRECT_AS_IT_IS = "vmap", "vmap with direct convolutions"  # uncompiled
COMPILE, DIRECT = "compile", "compile with direct convolutions"
UNFOLDED = "compile with unfolded convolutions"
_TRIED = 16  # clients that memory is measured with
_SHARE = 0.5  # of the free memory, for the clients at work; what they hold between rounds needs some, too
_COPIES = 8  # of a model that a round of a method may hold at once, beside those of a step
_PATIENCE = 20.0  # seconds: a model that takes longer to compile is not compiled in yet another way
_SAME = 1e-3  # how far gradients may be apart, of their size: rounding is far less, and a wrong sum far more
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
    found: Ways = {AS_IT_IS: lambda: vmapped}
    full = task.dtype in (torch.float32, torch.float64) and not task.half and not mixes
    direct = full and any(can_be_direct(module) for module in task.model.modules()) and has_triton()
    if direct:
        found[DIRECT_AS_IT_IS] = lambda: with_convolutions("direct", Graphed(task, clients))
    found[COMPILE] = lambda: Compile(task, clients)
    if direct:
        found[DIRECT] = lambda: with_convolutions("direct", Compile(task, clients))
    if not mixes and any(can_unfold(module) for module in task.model.modules()):
        found[UNFOLDED] = lambda: with_convolutions("unfolded", Compile(task, clients))
    return found


def with_convolutions(way: str, execution: Compile) -> Compile:
    """An execution in which convolutions are computed in a way."""
    execution.task, execution.convolutions = computed(execution.task, way), way
    return execution


def fastest(ways: Ways, clients: int, steps: int, trained: int, timed: Timed, slopes: Slopes) -> Choice:
    """The fastest way to have clients trained `trained` times for so many steps, `clients` at once.

    Kernels of our own are compiled anew for every kind of GPU and version of Triton. So they are first held against
    torch's own, on the run's own model and examples, and not used where they give something else. Compiling takes
    long: where both kinds of convolutions run uncompiled, the faster kind alone is compiled.
    """
    plain = ways[AS_IT_IS]()
    seconds, notes, patience = {AS_IT_IS: timed(plain, clients)}, list[str](), _PATIENCE
    for name, make in ways.items():
        compiles = name not in (AS_IT_IS, DIRECT_AS_IT_IS)
        worth = steps * trained * min(seconds.values()) > _WORTH and patience > 0
        if name == AS_IT_IS or (compiles and not worth) or name in _behind(seconds):
            continue
        execution, began = make(), perf_counter()
        try:
            if execution.convolutions == "direct" and not _agree(execution, plain, min(clients, _TRIED), slopes):
                notes.append(f"{name} cannot be used: on this GPU their gradients are not those of mode vmap")
                continue
            took = timed(execution, clients)
        except torch.OutOfMemoryError:  # what is unfolded takes more room
            continue
        except Exception as error:  # of many kinds: a kernel that this GPU cannot run, say
            notes.append(f"{name} cannot be used: {reason(error)}")
            continue
        patience -= compiles * (perf_counter() - began)
        if not execution.notes:
            seconds[name] = took
        notes += execution.notes
    best = min(seconds, key=seconds.__getitem__)
    measured = ", ".join(f"{name} {1e6 * value:.3g}" for name, value in seconds.items())
    return Choice(best, f"µs a step of one client: {measured}", notes)


def _behind(seconds: dict[str, float]) -> tuple[str, ...]:
    """The ways to compile that are behind, as far as times without compiling tell."""
    if DIRECT_AS_IT_IS not in seconds:
        return ()
    return (COMPILE, UNFOLDED) if seconds[DIRECT_AS_IT_IS] < seconds[AS_IT_IS] else (DIRECT,)


def _agree(one: Execution, other: Execution, clients: int, slopes: Slopes) -> bool:
    """Whether two executions give a few clients the same gradients."""
    mine, its = slopes(one.task, clients), slopes(other.task, clients)
    return bool((mine - its).norm() <= _SAME * its.norm())
