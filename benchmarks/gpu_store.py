"""What it costs that the clients' state lies in the processor's memory, as where a GPU's has no room for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from gpu_loops import timed
from torch import Tensor

from descant.state import store
from descant.state.streams import Done, Streams
from descant.trees import Tree


@dataclass
class Travelled:
    """The bytes of one client's row that travels, how often rows came back, and the bytes that went each way."""

    row: int = 0
    times: int = 0
    to: int = 0
    back: int = 0


@contextmanager
def in_host_memory() -> Iterator[Travelled]:
    """Let no state have room on the GPU, and see what travels."""
    seen, share, gather, scatter = Travelled(), store._SHARE, Streams.gather, Streams.scatter

    def gathers(self: Streams, names: Iterable[str], who: Tensor, after: Done | None) -> tuple[Tree, Done]:
        rows, done = gather(self, names, who, after)
        seen.to += sum(map(_bytes, rows.values()))
        return rows, done

    def scatters(self: Streams, rows: Tree, who: Tensor, aside: bool) -> Done:
        seen.row = sum(_bytes(leaf[0]) for leaf in rows.values())
        seen.times += 1
        seen.back += sum(map(_bytes, rows.values()))
        return scatter(self, rows, who, aside)

    store._SHARE, Streams.gather, Streams.scatter = 0.0, gathers, scatters  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        store._SHARE, Streams.gather, Streams.scatter = share, gather, scatter  # type: ignore[method-assign]


def _bytes(leaf: Tensor) -> int:
    return leaf.numel() * leaf.element_size()


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

    More than 1 is what is done for them besides.
    """
    return (beside - on_gpu) / copies
