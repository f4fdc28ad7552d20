"""Who is still at work: clients that finish early are left out of the batch, instead of being masked to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from descant.mirrors import host, sent

_FEW = 8  # clients that are not worth a phase of their own


@dataclass(frozen=True)
class Phase:
    """The steps from `begin` to `end`, for some of K clients."""

    begin: int
    end: int
    who: Tensor | None  # [W] their rows among the K, the last one repeated as padding; None for all K
    real: int  # how many of them are no padding; they come first
    alike: bool = False  # whether all of them are known to take every step up to the end

    def take(self, tree: Any) -> Any:
        """The phase's rows [W, ...] of tensors [K, ...]."""
        if isinstance(tree, tuple):
            return tuple(self.take(leaf) for leaf in tree)
        if self.who is None:
            return tree
        return tree[host(self.who) if tree.device.type == "cpu" else self.who]

    def put(self, tree: Any, rows: Any) -> Any:
        """Tensors [K, ...] with the phase's rows replaced."""
        if self.who is None:
            return rows
        if isinstance(tree, tuple):
            return tuple(self.put(leaf, row) for leaf, row in zip(tree, rows, strict=True))
        who = host(self.who) if tree.device.type == "cpu" else self.who
        return tree.index_copy(0, who[: self.real], rows[: self.real])


def phases(
    steps: Tensor,
    width: Callable[[int, bool], int],
    device: torch.device | None = None,
    ends: tuple[int, int] | None = None,
) -> Iterator[Phase]:
    """Phases for clients that take `steps` [K]: a new one whenever half of the last one's clients have finished.

    `width(clients, first)` says how many a program takes, where that number must come from a small set. Steps are
    counted in the processor's memory; the clients' rows lie on a `device`. `ends` are the fewest and the most
    steps, where they are known.
    """
    device = steps.device if device is None else device
    begin, (least, last) = 0, map(int, torch.aminmax(steps)) if ends is None else ends
    if least == last and width(len(steps), True) == len(steps):
        yield Phase(0, last, None, len(steps), alike=True)
        return
    while begin < last:
        who = (steps > begin).nonzero().squeeze(1)
        half = len(who) // 2
        end = last if len(who) < _FEW else int(steps[who].sort(descending=True).values[half])
        room = width(len(who), begin == 0)
        if room == len(steps) and len(who) == len(steps):
            yield Phase(begin, end, None, len(who))
        else:
            slot = torch.arange(room, device=who.device)
            yield Phase(begin, end, sent(who[slot.clamp(max=len(who) - 1)], device), len(who))
        begin = end
