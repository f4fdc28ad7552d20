"""What it costs that the clients' state lies in the processor's memory, as where a GPU's has no room for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from gpu_loops import timed
from torch import Tensor

from descant.state import store
from descant.trees import Tree


@dataclass
class Travelled:
    """The bytes of one client's row that travels, and how often rows came back."""

    row: int = 0
    times: int = 0


@contextmanager
def in_host_memory() -> Iterator[Travelled]:
    """Let no state have room on the GPU, and see what travels."""
    seen, share, plain = Travelled(), store._SHARE, store.ClientStore._send_back

    def watched(self: store.ClientStore, who: Tensor, rows: Tree) -> None:
        seen.row = sum(prod(shape) * dtype.itemsize for shape, dtype in self.spec.values())
        seen.times += 1
        plain(self, who, rows)

    store._SHARE, store.ClientStore._send_back = 0.0, watched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        store._SHARE, store.ClientStore._send_back = share, plain  # type: ignore[method-assign]


def copy_seconds(size: int) -> float:
    """How long so many bytes take to the GPU and back, by themselves, from memory that is pinned."""
    here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(size, dtype=torch.uint8, device="cuda")
    to, back = (
        timed(lambda a=a, b=b: a.copy_(b, non_blocking=True), 10) for a, b in ((there, here), (here, there))
    )
    return to + back


def share_shown(beside: float, on_gpu: float, copies: float) -> float:
    """What part of the seconds of the copies a round takes longer: 0 if all are hidden behind work, 1 if none are.

    More than 1 is what the processor does for them.
    """
    return (beside - on_gpu) / copies
