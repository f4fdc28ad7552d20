"""The local steps of K clients, one after the other, and what they leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.execution.batches import Schedule
from descant.execution.steps import Steps


class Start(NamedTuple):
    """Where K clients stand before some steps."""

    x: Any
    statistics: Tensor  # [K, b]
    met: Tensor  # [K] who has met the rule that ends the steps (`Until`)
    left: Tensor  # [K] how many steps each takes in all, in the processor's memory
    rows: tuple[Tensor, ...]  # [K, ...] each


class Walked(NamedTuple):
    """What some steps leave."""

    x: Any
    statistics: Tensor
    met: Tensor | None  # [K]; None where the step has no rule to end by
    taken: Tensor  # [K] how many steps each took, in the processor's memory
    gradients: tuple[int, ...]  # that a step asked for, of each draw


def walk(stepping: Steps, begin: int, end: int, start: Start, schedules: list[Schedule]) -> Walked:
    """The steps from `begin` to `end`, on the minibatches of the schedules."""
    x, statistics, met, left, rows = start
    there, taken = left.to(met.device), torch.zeros_like(met, dtype=torch.int64)
    gradients, until = (0,) * len(schedules), False
    for s in range(begin, end):
        active = (there > s) & ~met
        if until and not active.any():
            break
        sources = tuple(schedule.at(s) for schedule in schedules)
        stepped = stepping(x, statistics, sources, active, rows)
        x, statistics, gradients = stepped.x, stepped.statistics, stepped.gradients
        if stepped.met is not None:
            until, met, taken = True, met | stepped.met, taken + active
    return Walked(
        x, statistics, met if until else None, taken.cpu() if until else planned(left, begin, end), gradients
    )


def planned(left: Tensor, begin: int, end: int) -> Tensor:
    """How many of the steps from `begin` to `end` each client [K] takes, unless a rule ends them."""
    return left.clamp(begin, end) - begin
