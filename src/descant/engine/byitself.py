"""Whether a client comes out the same by itself as beside others. Where it does not, a hook mixes the clients.

A method is written on a batch of clients, and what it makes of one must not depend on who else is in the batch: how
many are worked on at once is a matter of memory, and a device on a network is alone. Of a user's method, the first
call of a hook is held against one on the last of its clients alone. Numbers differ a little by the shape they are
computed in, and a run may make much of little (signs of what is nearly zero): so this is said, and not refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from descant.engine.unchanged import has_users
from descant.errors import MixingWarning
from descant.methods import Method

Alone = Callable[[Tensor], tuple[Any, Iterable[Any]]]  # what a hook makes of a client [1], and of what
_OF_MOVE, _OF_X = 0.1, 100.0  # of how far a row has moved, and of it in units of its last bit: rounding makes less


class ByItself:
    """The hooks of a method that are still to be held against a call on one client alone."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.left = {"client_start", "client", "personal"} if has_users(method) else set()

    def look(self, hook: str, who: Tensor, among: Any, alone: Alone) -> None:
        """Warn if a hook made something else of the last client of `who` [K] than it does of it `alone`."""
        if hook not in self.left or len(who) < 2:
            return
        self.left.discard(hook)
        try:
            one, made_from = alone(who[-1:])
            found = _apart(among, one, [leaf[0] for tree in made_from for _, leaf in _rows(tree)])
        except Exception:
            # The run went on without this call: one that fails here alone, or finds no room, is no mistake there.
            return
        if found is not None:
            name, share = found
            beside = "1 other" if len(who) == 2 else f"{len(who) - 1} others"
            said = (
                f"the hook {type(self.method).__name__}.{hook} makes something else of a client beside {beside} "
                f"than of the same one alone ({name}, by {share} of how far it moves), so that results depend on "
                "how many are worked on at once (chunk). Mostly it mixes the rows of the batch, as v.norm() does, "
                "and v.norm(dim=1, keepdim=True) does not"
            )
            warnings.warn(MixingWarning(said), stacklevel=2)


def _apart(among: Any, alone: Any, begun: list[Tensor]) -> tuple[str, str] | None:
    """The first leaf whose last row is not what a client has alone, and how far it is from that.

    `begun` is what both began with: the nearest of these tells how far the row has moved.
    """
    for (name, leaf), (_, one) in zip(_rows(among), _rows(alone), strict=True):
        a, b = leaf[-1], one[0]
        if not a.is_floating_point() or not a.numel() or not bool(a.isfinite().all() & b.isfinite().all()):
            continue
        near = [torch.linalg.vector_norm(a - c) for c in begun if c.shape == a.shape and c.dtype == a.dtype]
        size, gap = float(torch.linalg.vector_norm(a)), float(torch.linalg.vector_norm(a - b))
        move = min([size, *(float(each) for each in near if each > 0)])
        if gap > _OF_MOVE * move + _OF_X * torch.finfo(a.dtype).eps * size:
            return name, f"{100 * gap / move:.0f} %" if move else "more than all"
    return None


def _rows(tree: Any) -> Iterator[tuple[str, Tensor]]:
    """The leaves [K, ...] of what a hook takes or gives, by name."""
    if isinstance(tree, Tensor):
        yield "the model", tree
    elif isinstance(tree, Mapping):
        for name in sorted(tree):
            if isinstance(tree[name], Tensor):
                yield f"'{name}'", tree[name]
    else:
        for each in tree:
            yield from _rows(each)
