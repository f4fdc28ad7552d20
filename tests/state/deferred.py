"""Stands in for the streams of a GPU: copies are made as late as they may be, or a little earlier by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import torch
from torch import Tensor

from descant.state.leaves import Shapes
from descant.trees import Tree

GARBAGE = -99


class Way:
    """Copies in one direction, made one after the other."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], object]] = []
        self.made = 0

    def make(self, upto: int) -> None:
        while self.made < upto:
            self.asked[self.made]()
            self.made += 1


class Ticket:
    """All copies of a way up to one."""

    def __init__(self, way: Way) -> None:
        self.way, self.upto = way, len(way.asked)

    def synchronize(self) -> None:
        self.way.make(self.upto)


class Deferred:
    """What `Streams` does, where the device is the processor: nothing is there before somebody waited for it."""

    device = torch.device("cpu")

    def __init__(self, device: torch.device | None = None, seed: int = 0, free: int = 10**9) -> None:
        self.to, self.back, self.chance, self.free = Way(), Way(), Random(seed), free
        self.brought = self.sent = 0  # rows

    def some_time_passes(self) -> None:
        for way in (self.to, self.back):
            way.make(self.chance.randint(way.made, len(way.asked)) if self.chance.random() < 0.5 else way.made)

    def allocate(self, clients: int, spec: Shapes) -> Tree:
        self.rows = {
            name: torch.full((clients, *shape), GARBAGE, dtype=dtype) for name, (shape, dtype) in spec.items()
        }
        return self.rows

    def gather(self, names: Iterable[str], who: Tensor, after: Ticket | None) -> tuple[Tree, Ticket]:
        self.some_time_passes()
        here = {name: self.rows[name] for name in names}
        there = {name: torch.full_like(leaf[who], GARBAGE) for name, leaf in here.items()}
        if after is not None:
            self.to.asked.append(after.synchronize)
        self.to.asked += [partial(torch.index_select, here[name], 0, who, out=there[name]) for name in here]
        self.brought += len(who)
        return there, Ticket(self.to)

    def join(self, rows: Tree, done: Ticket) -> None:
        done.synchronize()

    def scatter(self, rows: Tree, who: Tensor, aside: bool) -> Ticket:
        # Else a GPU would need memory to copy them, and might not have it when a part has gone.
        assert all(leaf.is_contiguous() and leaf.dtype == self.rows[name].dtype for name, leaf in rows.items())
        self.some_time_passes()
        read = rows if aside else {name: leaf.clone() for name, leaf in rows.items()}  # and others change them now
        self.back.asked += [partial(self.rows[name].index_copy_, 0, who, read[name]) for name in self.rows]
        self.sent += len(who)
        return Ticket(self.back)

    def room(self) -> int:
        return self.free
