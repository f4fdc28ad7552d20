"""Stands in for the streams of a GPU: copies are made as late as they may be, or a little earlier by chance."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor

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

    def __init__(self, ways: Deferred, way: Way) -> None:
        self.ways, self.way, self.upto = ways, way, len(way.asked)

    def query(self) -> bool:
        self.ways.some_time_passes()
        return self.way.made >= self.upto

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

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, GARBAGE, dtype=dtype)

    def bring(self, rows: Tree) -> tuple[Tree, Ticket]:
        self.some_time_passes()
        there = {name: torch.full_like(leaf, GARBAGE) for name, leaf in rows.items()}
        self.to.asked += [lambda a=there[name], b=leaf: a.copy_(b) for name, leaf in rows.items()]  # type: ignore[misc]
        self.brought += len(next(iter(rows.values())))
        return there, Ticket(self, self.to)

    def join(self, rows: Tree, done: Ticket) -> None:
        done.synchronize()

    def send(self, rows: Tree, into: Tree, aside: bool) -> Ticket:
        # Else a GPU would need memory to copy them, and might not have it when a part has gone.
        assert all(rows[name].is_contiguous() and rows[name].dtype == leaf.dtype for name, leaf in into.items())
        self.some_time_passes()
        self.back.asked += [lambda a=leaf, b=rows[name]: a.copy_(b) for name, leaf in into.items()]  # type: ignore[misc]
        self.sent += len(next(iter(rows.values())))
        done = Ticket(self, self.back)
        if not aside:
            done.synchronize()
        return done

    def room(self) -> int:
        return self.free
