"""The local steps of K clients, one after the other, and what they leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from descant.execution.base import Execution
from descant.execution.batches import Schedule
from descant.execution.stepping import owner_of
from descant.execution.steps import Steps, of_method
from descant.execution.unrolled import Unrolled, strides, together, unrolled
from descant.fields import of_descant
from descant.methods.base import Step


class Start(NamedTuple):
    """Where K clients stand before some steps."""

    x: Any
    statistics: Tensor  # [K, b]
    met: Tensor  # [K] who has met the rule that ends the steps (`Until`)
    left: Tensor  # [K] how many steps each takes in all, in the processor's memory
    rows: tuple[Tensor, ...]  # [K, ...] each
    alike: bool = False  # whether all are known to take every step up to the last that is asked for


class Walked(NamedTuple):
    """What some steps leave."""

    x: Any
    statistics: Tensor
    met: Tensor | None  # [K]; None where the step has no rule to end by
    taken: Tensor  # [K] how many steps each took, in the processor's memory
    gradients: tuple[int, ...]  # that a step asked for, of each draw


def walk(step: Step, execution: Execution, begin: int, end: int, start: Start, schedules: list[Schedule]) -> Walked:
    """The steps from `begin` to `end`, on the minibatches of the schedules: cheap ones several in one program."""
    x, statistics, met, left, rows = (_dense(part) for part in start[:5])
    if not of_descant(type(owner_of(of_method(step)))):  # it may write in place, and not into what its hook holds
        x, rows = tree_map(_apart_from, (x, rows), (start.x, start.rows))
    there, taken = left.clamp(max=end).to(met.device, non_blocking=True), torch.zeros_like(met, dtype=torch.int64)
    examples = min(schedules[0].batch, schedules[0].rows.part.largest)
    # Narrower programs, for those who are still at work, have fewer steps to win back their making.
    number = together(execution, x, examples, end - begin) if begin == 0 else 1
    walking = {number: Steps(step, execution, unrolled) for number in (1, number)}
    gradients, until = (0,) * len(schedules), False
    for group in strides(begin, end, number):
        to_take = (there - group.start).masked_fill(met, 0)
        if until and not (to_take > 0).any():
            break
        sources = tuple(tuple(schedule.at(min(s, end - 1)) for schedule in schedules) for s in group)
        done: Unrolled = walking[len(group)](x, statistics, sources, to_take, rows)
        x, statistics, gradients = done.x, done.statistics, done.gradients
        if done.met is not None:
            until, met, taken = True, met | done.met, taken + done.taken
    if not until:
        return Walked(x, statistics, None, planned(left, begin, end), gradients)
    return Walked(x, statistics, met, taken.cpu(), gradients)


def _dense(tree: Any) -> Any:
    """Tensors of one layout, so that one program serves."""
    if isinstance(tree, tuple):
        return tuple(_dense(leaf) for leaf in tree)
    # A tensor without numbers is contiguous whatever its strides.
    return tree.contiguous() if tree.numel() else torch.empty(tree.shape, dtype=tree.dtype, device=tree.device)


def _apart_from(dense: Tensor, given: Tensor) -> Tensor:
    """The tensor, in memory of its own."""
    return dense.clone() if dense.data_ptr() == given.data_ptr() else dense


def planned(left: Tensor, begin: int, end: int) -> Tensor:
    """How many of the steps from `begin` to `end` each client [K] takes, unless a rule ends them."""
    return left.clamp(begin, end) - begin
