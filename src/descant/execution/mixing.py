"""A step that mixes the clients of a batch is refused: what it computes would depend on who is in the batch.

The first of a step's runs is looked at, of a class of the user's own: what the step makes of a client by itself
must be what it makes of it among the others. Gradients are not computed again.
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

# Of how far the step moves x, and of x, rounding makes less than this: matrix products differ by shape.
_OF_MOVE, _OF_X = 1e-3, 100.0
_APART = 0.5, 0.1  # how far clients are put apart for it, of x and beside it


def refuse_mixing(step: Step, execution: Execution, begin: int, start: Start, schedules: list[Schedule]) -> None:
    """Refuse a user's step that makes something else of a client among others than of the client alone."""
    owner = owner_of(of_method(step))
    if owner is None or of_descant(type(owner)) or len(start.met) < 2:
        return
    # A step that writes in place must not do so twice.
    statistics, rows = tree_map_only(Tensor, torch.clone, (start.statistics, start.rows))
    x = tree_map_only(Tensor, _scattered, start.x)
    active = start.left.to(start.met.device) > begin
    grad = _Kept(gradient_of(execution, statistics, tuple(each.at(begin) for each in schedules), active))
    among = _moved(stepped(step, tree_map_only(Tensor, torch.clone, x), grad, rows))
    for k in (0, len(start.met) - 1):  # one of them may by itself make what all share, as the largest number
        replayed = _Replayed(grad, k)
        try:
            alone = _moved(stepped(step, _one(x, k), replayed, _one(rows, k)))
        except SettingError:  # of a step that takes no batch of one, its use says so
            return
        pairs = [*zip(_one(among, k), alone, _one(tree_leaves(x), k), strict=True), *replayed.pairs]
        if any(_apart(*pair) for pair in pairs):
            raise SettingError(
                f"the hook {hook_of(of_method(step))} mixes clients: what it makes of one depends on the others in "
                "the batch, so that results would depend on how many are worked on at once. Compute every row by "
                "itself, as in g.norm(dim=1, keepdim=True) and not g.norm()"
            )


class _Kept:
    """The gradients of a step, which keeps where they were asked for and what they were."""

    def __init__(self, grad: Any) -> None:
        self.grad, self.asked, self.given = grad, list[Tensor](), list[Tensor]()

    def __call__(self, x: Tensor, /, *rows: Tensor, **more: Any) -> Tensor:
        given: Tensor = self.grad(x, *rows, **more)
        self.asked.append(x.clone())
        self.given.append(given.clone())
        return given


class _Replayed:
    """What the client k was given among the others, and where it was asked for then and now."""

    def __init__(self, kept: _Kept, k: int) -> None:
        self.kept, self.k, self.pairs = kept, k, list[tuple[Tensor, Tensor, Tensor]]()

    def __call__(self, x: Tensor, /, *rows: Tensor, **more: Any) -> Tensor:
        call = len(self.pairs)
        if call == len(self.kept.given):
            raise SettingError("a step asks for more gradients of a client alone than among others")
        before: Tensor = _one(self.kept.asked[call], self.k)
        self.pairs.append((before, x.clone(), before))
        given: Tensor = _one(self.kept.given[call], self.k)
        return given


def _moved(new: Any) -> list[Tensor]:
    """Where a step has led, by tensor."""
    new = new.x if isinstance(new, Until) else new
    return list(tree_leaves(new.x if isinstance(new, Down) else new))


def _one(tree: Any, k: int) -> Any:
    return tree_map_only(Tensor, lambda leaf: leaf[k : k + 1].clone(), tree)


def _scattered(x: Tensor) -> Tensor:
    """x [K, ...] with clients a little apart: in the first round all may start from the same."""
    if not x.is_floating_point():
        return x.clone()
    k = torch.arange(len(x), dtype=x.dtype, device=x.device).view(-1, *[1] * (x.dim() - 1)) / len(x)
    return x * (1 + _APART[0] * k) + _APART[1] * k


def _apart(among: Tensor, alone: Tensor, before: Tensor) -> bool:
    """Whether two tensors differ by more than rounding does, as far as they are finite."""
    if among.shape != alone.shape or not among.is_floating_point() or not among.numel():
        return False
    rounding = torch.finfo(among.dtype).eps * _OF_X
    limit = _OF_MOVE * (among - before).abs().amax() + rounding * torch.maximum(
        among.abs().amax(), before.abs().amax()
    )
    return bool((among - alone).abs().amax() > limit)
