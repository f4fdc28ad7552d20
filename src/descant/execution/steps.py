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
from descant.execution.programs import NoIdentityError, identity, name_of, reason, signature
from descant.execution.stepping import stepped
from descant.methods import Down, Optimizer, Until
from descant.methods.base import Step
from descant.notensor import never_computed_with
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


never_computed_with(
    _Gradient, "the grad that a step is handed is a function, and no tensor: write grad(x), or self.slope(x, grad)"
)


def gradient_of(execution: Execution, statistics: Tensor, sources: Sources, active: Tensor) -> _Gradient:
    """The gradients that a step may ask for, of the active clients [K]."""
    # The loop's workers collect for themselves, one client at a time.
    whole = not isinstance(execution, Loop)
    batches = [source.collect() if whole and isinstance(source, Draw) else source for source in sources]
    return _Gradient(execution, statistics, batches, active)


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
    grad = gradient_of(execution, statistics, sources, active)
    new, met = stepped(step, x, grad, rows), None
    if isinstance(new, Until):
        met = active & new.met  # what a finished client computes carries no meaning
        active, new = active & ~met, new.x
    if isinstance(new, Down):
        new = new.x
    if statistics.shape[1]:
        statistics = torch.where(active[:, None], grad.after, statistics)
    return Stepped(_keep(active, new, x), statistics, met, tuple(grad.calls))


def optimized(
    step: Step, optimizer: Optimizer, lr: float, scaled: bool, state: tuple[Tensor, ...], grad: Any, *rows: Tensor
) -> Any:
    """A step whose moves an optimizer makes: on x [K, d] and the optimizer's state. If they are `scaled`, the first
    of the rows [K, 1] says by how much."""
    x, held = state[0], state[1:]
    scale, rows = (rows[0], rows[1:]) if scaled else (None, rows)
    new = stepped(step, x, grad, rows)
    moved = new.x if isinstance(new, Until) else new
    proposed = moved.move if isinstance(moved, Down) else moved - x
    move, held = optimizer.move(proposed, lr, held)
    after = (x + (move if scale is None else scale * move), *held)
    return Until(after, new.met) if isinstance(new, Until) else after


def of_method(step: Step) -> Step:
    """The method's own step, where an optimizer makes its moves."""
    own: Step = step.args[0] if isinstance(step, partial) and step.func is optimized else step
    return own


def _keep(active: Tensor, new: Any, old: Any) -> Any:
    """The new rows of active clients, the old rows of the others."""
    if isinstance(new, tuple):
        return tuple(_keep(active, n, o) for n, o in zip(new, old, strict=True))
    return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)


class Steps:
    """A method's step, for clients to take again and again: with tensors of the same kinds, but for the first few.
    `by` is what a call does with it: one step (`advance`), or several (`descant.execution.unrolled`).

    Where the execution asks for it, it is compiled, and where it cannot be compiled it runs as it is and is noted:
    that holds for these kinds of tensors, and so it is the same for a run that is resumed.
    """

    def __init__(self, step: Step, execution: Execution, by: Callable[..., Any] = advance) -> None:
        self.step, self.execution = step, execution
        self._apply = partial(by, step, execution)
        self.identity: Hashable = None
        self._signature: Hashable = None
        self._settled = False
        if isinstance(execution, Compile):
            try:
                self.identity = identity(by), identity(step)
            except (NoIdentityError, RecursionError):
                lasting = "pass tensors to a step as rows, and use no lambda"
                execution.note(f"{name_of(step)} has no lasting identity: {lasting}")

    def __call__(self, x: Any, *others: Any) -> Any:
        """The clients' x [K, d], or several tensors, and what else `by` takes; what it leaves."""
        arguments = (x, *others)
        if self.identity is None:
            return self._apply(*arguments)
        if not self._settled:
            self._find(arguments)
        try:
            left = self._programs[self._key](*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of many kinds: no compiler, an operation that it cannot trace
            left = self._apply(*arguments)  # a mistake of the method's own is raised here
            self._programs[self._key] = self._apply
            self.execution.note(f"a step could not be compiled: {reason(error)}")
        return left

    def _find(self, arguments: tuple[Any, ...]) -> None:
        """The program for these arguments. What one leaves of the same kinds as it was given, all others will."""
        assert isinstance(self.execution, Compile)
        before, self._signature = self._signature, signature(arguments)
        self._settled = before == self._signature
        self._programs, self._key = self.execution.programs, (self.identity, self._signature)
        if self._key not in self._programs:
            on_cpu = device_of(arguments[0]).type == "cpu"
            self._programs[self._key] = self.execution.program(self._apply, on_cpu)


def device_of(x: Any) -> torch.device:
    """Where the clients' x lie, one tensor or several."""
    first: Tensor = x[0] if isinstance(x, tuple) else x
    return first.device
