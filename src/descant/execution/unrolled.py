"""Several local steps in one compiled program: to call it takes about half as long as a step of a small model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.execution.base import Execution
from descant.execution.compiled import Compile
from descant.execution.onebyone import OneByOne
from descant.execution.steps import Sources, advance, device_of
from descant.methods.base import Step
from descant.task.recurrent import recurrent_layers

TOGETHER = 4  # steps: most of what can be gained, and a program of some seconds to make
_CHEAP = 2**27  # multiplications and additions of a step, beside which a call is nothing
_WASTE = 0.1  # of the steps may be idle ones that fill up the last program


class Unrolled(NamedTuple):
    """What several steps leave: as `Stepped`, and how many of them [K] each client took."""

    x: Any
    statistics: Tensor
    met: Tensor | None
    gradients: tuple[int, ...]
    taken: Tensor


def unrolled(
    step: Step,
    execution: Execution,
    x: Any,
    statistics: Tensor,
    sources: tuple[Sources, ...],
    left: Tensor,
    rows: tuple[Tensor, ...],
) -> Unrolled:
    """Apply `step` once for each of the `sources`, to the clients that have so many steps `left` [K]."""
    met: Tensor | None = None
    gradients: tuple[int, ...] = ()
    taken = torch.zeros_like(left)
    for number, of_step in enumerate(sources):
        active = left > number if met is None else (left > number) & ~met
        x, statistics, found, gradients = advance(step, execution, x, statistics, of_step, active, rows)
        taken = taken + active
        if found is not None:
            met = found if met is None else met | found
    return Unrolled(x, statistics, met, gradients, taken)


def together(execution: Execution, x: Any, examples: int, steps: int) -> int:
    """How many of so many steps a program takes, each on minibatches of so many examples a client."""
    numbers = x[0].numel() if isinstance(x, tuple) else x.numel()
    cheap = 6 * numbers * examples <= _CHEAP  # two forward, and four backward
    # In convolutions and recurrent layers each weight is used many times, and no step is cheap.
    often = isinstance(execution, OneByOne) or bool(recurrent_layers(execution.task.model))
    unrolls = isinstance(execution, Compile) and not often and device_of(x).type == "cpu" and cheap
    return TOGETHER if unrolls and steps >= TOGETHER else 1


def strides(begin: int, end: int, together: int) -> Iterator[range]:
    """The steps from `begin` to `end` in groups of so many. The last group may reach beyond the end where that
    wastes little, so that no other program is needed; else its steps come one by one."""
    whole = begin + (end - begin) // together * together
    if whole + together - end <= _WASTE * (end - begin):
        whole = begin - (begin - end) // together * together
    for s in range(begin, whole, together):
        yield range(s, s + together)
    for s in range(whole, end):
        yield range(s, s + 1)
