"""A step that mixes the clients of a batch is refused: what it computes would depend on who is in the batch.

The first of a step's runs is looked at, of a class of the user's own. Where that has led, the step is taken once
more, and then with a client's own numbers in the place of all others': what becomes of that client must be the
same. Shapes are, and so is the rounding. Gradients are computed once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from descant.errors import SettingError
from descant.execution.base import Execution
from descant.execution.batches import Schedule
from descant.execution.stepping import hook_of, owner_of, stepped
from descant.execution.steps import gradient_of, of_method
from descant.execution.walk import Start
from descant.fields import of_descant
from descant.methods import Down, Until
from descant.methods.base import Step

_OF_MOVE, _OF_X = 1e-3, 100.0  # of how far the step moves x, and of x in units of its last bit: rounding makes less


def refuse_mixing(
    step: Step, execution: Execution, begin: int, start: Start, reached: Any, schedules: list[Schedule]
) -> None:
    """Refuse a user's step that makes something else of a client where the others are others; `reached` is the x
    that steps have led to, where clients differ though all may have begun with the same model."""
    owner = owner_of(of_method(step))
    if owner is None or of_descant(type(owner)) or len(start.met) < 2:
        return
    try:
        mixes = _mixes(step, execution, begin, start, reached, schedules)
    except Exception:
        # The run took its steps: one that fails here alone, or finds no room here, is no mistake of the user's.
        return
    if mixes:
        raise SettingError(
            f"the hook {hook_of(of_method(step))} mixes clients: what it makes of one depends on the others in "
            "the batch, so that results would depend on how many are worked on at once. Compute every row by "
            "itself, as in g.norm(dim=1, keepdim=True) and not g.norm()"
        )


def _mixes(
    step: Step, execution: Execution, begin: int, start: Start, reached: Any, schedules: list[Schedule]
) -> bool:
    active = start.left.to(start.met.device) > begin
    sources = tuple(schedule.at(begin) for schedule in schedules)
    kept = _Kept(gradient_of(execution, start.statistics.clone(), sources, active))
    among = _moved(stepped(step, _copied(reached), kept, _copied(start.rows)))
    for k in (0, len(start.met) - 1):  # one of them may by itself make what all share, as the largest number
        again = _Again(kept, k)
        after = _moved(stepped(step, _all(reached, k), again, _all(start.rows, k)))
        if again.calls != len(kept.given):
            return False  # a step whose gradients are as many as its clients need: these cannot be told apart
        pairs = [*zip(among, after, tree_leaves(reached), strict=True), *again.pairs]
        if any(_apart(*(each[k] for each in pair)) for pair in pairs):
            return True
    return False


class _Kept:
    """The gradients of a step, which keeps where they were asked for and what they were."""

    def __init__(self, grad: Any) -> None:
        self.grad, self.asked, self.given = grad, list[Tensor](), list[Tensor]()

    def __call__(self, x: Tensor, /, *rows: Tensor, **more: Any) -> Tensor:
        given: Tensor = self.grad(x, *rows, **more)
        self.asked.append(x.clone())
        self.given.append(given.clone())
        return given


class _Again:
    """The gradients that the client k had, for all; and where it was asked for them, then and now."""

    def __init__(self, kept: _Kept, k: int) -> None:
        self.kept, self.k, self.calls, self.pairs = kept, k, 0, list[tuple[Tensor, Tensor, Tensor]]()

    def __call__(self, x: Tensor, /, *rows: Tensor, **more: Any) -> Tensor:
        call = min(self.calls, len(self.kept.given) - 1)
        self.calls += 1
        before = self.kept.asked[call]
        self.pairs.append((before, x.clone(), before))
        given: Tensor = _all(self.kept.given[call], self.k)
        return given


def _moved(new: Any) -> list[Tensor]:
    """Where a step has led, by tensor."""
    new = new.x if isinstance(new, Until) else new
    return list(tree_leaves(new.x if isinstance(new, Down) else new))


def _copied(tree: Any) -> Any:
    """Copies: a step may write in place."""
    return tree_map_only(Tensor, torch.clone, tree)


def _all(tree: Any, k: int) -> Any:
    """The rows of the client k in the place of all."""
    return tree_map_only(Tensor, lambda leaf: leaf[k : k + 1].expand_as(leaf).clone(), tree)


def _apart(among: Tensor, after: Tensor, before: Tensor) -> bool:
    """Whether two rows differ by more than rounding does."""
    if not among.is_floating_point() or not among.numel():
        return False
    if not bool(among.isfinite().all()):
        return False  # it has overflowed by itself, or with the others: that is told elsewhere
    rounding = torch.finfo(among.dtype).eps * _OF_X
    size = torch.maximum(among.abs().amax(), before.abs().amax())
    limit = _OF_MOVE * (among - before).abs().amax() + rounding * size
    return not bool((among - after).abs().amax() <= limit)
