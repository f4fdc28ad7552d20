"""One local step of K clients: collect the minibatch, call the method's step, keep who has finished.

In the mode "compile" the whole of it is one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.execution import Compile, Execution, Loop
from descant.execution.batches import Draw
from descant.methods import Until
from descant.methods.base import Step
from descant.task import Batch, Objective

Sources = tuple[Draw | Batch, ...]


class Stepped(NamedTuple):
    """What a step leaves: the clients' x and running statistics, who met the rule, the gradients of each draw."""

    x: Any
    statistics: Tensor
    met: Tensor | None
    gradients: tuple[int, ...]


class _Gradient:
    """The gradients at one step (`descant.methods.Gradient`)."""

    def __init__(self, execution: Execution, statistics: Tensor, batches: list[Any], active: Tensor) -> None:
        self.execution, self.before, self.batches, self.active = execution, statistics, batches, active
        self.after = statistics
        self.calls = [0] * len(batches)

    def __call__(self, x: Tensor, /, *rows: Tensor, objective: Objective | None = None, draw: int = 0) -> Tensor:
        of = self.execution.task.objective if objective is None else objective
        gradients, self.after = self.execution.grads(x, self.before, self.batches[draw], self.active, of, rows)
        self.calls[draw] += 1
        return gradients


def advance(
    step: Step,
    execution: Execution,
    x: Any,
    statistics: Tensor,
    sources: Sources,
    active: Tensor,
    rows: tuple[Tensor, ...],
) -> Stepped:
    """Apply `step` to the active clients [K]; the others stay as they are."""
    # The loop's workers collect for themselves, one client at a time.
    whole = not isinstance(execution, Loop)
    batches = [source.collect() if whole and isinstance(source, Draw) else source for source in sources]
    grad = _Gradient(execution, statistics, batches, active)
    new, met = step(x, grad, *rows), None
    if isinstance(new, Until):
        met = active & new.met  # what a finished client computes carries no meaning
        active, new = active & ~met, new.x
    if statistics.shape[1]:
        statistics = torch.where(active[:, None], grad.after, statistics)
    return Stepped(_keep(active, new, x), statistics, met, tuple(grad.calls))


def heavy_ball(step: Step, momentum: float, state: tuple[Tensor, Tensor], grad: Any, *rows: Tensor) -> Any:
    """A step with momentum: x [K, d] and its last move, to which each step adds its own."""
    x, move = state
    new = step(x, grad, *rows)
    stepped = new.x if isinstance(new, Until) else new
    move = momentum * move + (stepped - x)
    return Until((x + move, move), new.met) if isinstance(new, Until) else (x + move, move)


def _keep(active: Tensor, new: Any, old: Any) -> Any:
    """The new rows of active clients, the old rows of the others."""
    if isinstance(new, tuple):
        return tuple(_keep(active, n, o) for n, o in zip(new, old, strict=True))
    return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)


def run_step(
    step: Step,
    execution: Execution,
    x: Any,
    statistics: Tensor,
    sources: Sources,
    active: Tensor,
    rows: tuple[Tensor, ...],
) -> Stepped:
    """`advance`, compiled where the execution asks for it. What cannot be compiled runs as it is, and is noted."""
    arguments = (x, statistics, sources, active, rows)
    if not isinstance(execution, Compile):
        return advance(step, execution, *arguments)
    identity = _identity(step)
    if identity is None:
        execution.note(f"{step} has no lasting identity: pass tensors to a step as rows, and use no lambda")
        return advance(step, execution, *arguments)
    name = (identity, len(rows), *map(type, sources))
    if name not in execution.programs:
        execution.programs[name] = _compiled(step, execution)
    try:
        stepped: Stepped = execution.programs[name](*arguments)
    except Exception as error:  # of many kinds: no compiler, an operation it cannot trace, too many shapes
        stepped = advance(step, execution, *arguments)  # a mistake of the method's own is raised here
        execution.programs[name] = partial(advance, step, execution)
        execution.note(f"a step could not be compiled: {(str(error).splitlines() or [type(error).__name__])[0]}")
    return stepped


def _compiled(step: Step, execution: Compile) -> Callable[..., Stepped]:
    def program(*arguments: Any) -> Stepped:
        return advance(step, execution, *arguments)

    # torch keeps what it compiled by code object, and tells programs apart by checking, before every call, all that
    # they depend on, which takes as long as the step of a small model. A code object for each program makes that
    # needless: within one, only the tensors' shapes can differ.
    program.__code__ = program.__code__.replace(co_name=f"program_{len(execution.programs)}")
    unchecked: dict[str, Any] = {"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}
    return torch.compile(program, dynamic=False, fullgraph=True, options=unchecked)


def _identity(step: Any) -> Hashable | None:
    """What a step is, for finding its program again in the next round; None for what is made anew each time.

    Methods are frozen dataclasses: a bound method is its name and its method's fields.
    """
    if isinstance(step, partial):
        parts = [_identity(part) if callable(part) else id(part) for part in (step.func, *step.args)]
        return None if None in parts or step.keywords else tuple(parts)
    owner = getattr(step, "__self__", None)
    if owner is None:
        lasting = "<" not in getattr(step, "__qualname__", "<")
        return (step.__module__, step.__qualname__) if lasting else None
    try:
        hash(owner)
    except TypeError:  # a field that can change
        return None
    return (type(owner), owner, step.__func__.__qualname__)
