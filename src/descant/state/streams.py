"""Rows between the processor's memory and a GPU's, which travel while it works: one stream for each way."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any, Protocol
from weakref import finalize

import torch
from torch import Tensor

from descant.errors import SlowWarning
from descant.execution.device import free_memory
from descant.state.leaves import Shapes
from descant.trees import Tree


class Done(Protocol):
    """Tells when rows have arrived: an event of a GPU."""

    def synchronize(self) -> None:
        """Wait until they have."""
        ...


class Ways(Protocol):
    """What takes rows to a device and back, in the order in which each way is asked.

    The clients' numbers `who` [K] are given in the processor's memory, and there is one of them at least.
    """

    device: torch.device

    def allocate(self, clients: int, spec: Shapes) -> Tree:
        """The rows [N, ...] in the processor's memory, which are anything yet."""
        ...

    def gather(self, names: Iterable[str], who: Tensor, after: Done | None) -> tuple[Tree, Done]:
        """Begin to take rows [K, ...] to the device, `after` others are back. Who calls `join` has them there."""
        ...

    def join(self, rows: Tree, done: Done) -> None:
        """Let what is asked of the device from now on wait for rows that were taken there."""
        ...

    def scatter(self, rows: Tree, who: Tensor, aside: bool) -> Done:
        """Begin to put rows [K, ...] back in their place, after what was asked of the device up to now.

        What is asked from now on waits until they were read, unless they lie `aside`, where nobody changes them.
        """
        ...

    def room(self) -> int:
        """The bytes of the device that are free."""
        ...


class Streams:
    """The two ways beside the stream that computes, so that both are used at once and neither holds up the work.

    Rows of clients who follow each other are copied by the engines that a GPU has for it, and those of others by
    kernels (`descant.state.rows`), as far as these reach the memory. Else the processor brings rows together.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Before the work: kernels that move rows are small, and do little but wait for the bus.
        self._to: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._back: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        self._rows: Tree = {}
        self._kernels: ModuleType | None = None
        self._numbers: Tensor  # [2, N] memory for the numbers of clients whose rows kernels move, to and back
        finalize(self, _wait, self._to, self._back)  # since torch would not know that kernels still use the rows

    def allocate(self, clients: int, spec: Shapes) -> Tree:
        self._rows = {name: _pinned(clients, *shape, dtype=dtype) for name, (shape, dtype) in spec.items()}
        pinned = all(leaf.is_pinned() for leaf in self._rows.values() if leaf.numel())
        self._kernels = self._tried(clients) if pinned else None
        return self._rows

    def _tried(self, clients: int) -> ModuleType | None:
        """The kernels, if they work here. All that are needed are compiled and loaded then."""
        try:
            from descant.state import rows  # which needs Triton

            with torch.cuda.stream(self._back):
                self._numbers = torch.empty(2, clients, dtype=torch.int64, device=self.device)
                if not all(rows.arrives(leaf, self.device) for leaf in self._rows.values()):
                    raise RuntimeError("on this GPU they arrive changed")
            return rows
        except Exception as error:  # of many kinds: there is no compiler, say
            said = "the clients' rows are brought together by the processor, since no kernel can move them"
            warnings.warn(SlowWarning.since(error, said), stacklevel=2)
            return None

    def gather(self, names: Iterable[str], who: Tensor, after: Done | None) -> tuple[Tree, Done]:
        here, span = {name: self._rows[name] for name in names}, _span(who)
        there: Tree = {}
        # The memory is this stream's own: that of the stream that computes would be free only after its work.
        with torch.cuda.stream(self._to):
            if after is not None:
                self._to.wait_event(after)
            if span is not None:
                there = {name: leaf[span].to(self.device, non_blocking=True) for name, leaf in here.items()}
            elif self._kernels is not None:
                numbers = _sent(who, self._numbers[0])
                for name, leaf in here.items():
                    there[name] = torch.empty(len(who), *leaf.shape[1:], dtype=leaf.dtype, device=self.device)
                    self._kernels.gather(leaf, numbers, there[name])
            else:
                if after is not None:
                    after.synchronize()
                there = {name: leaf.index_select(0, who).to(self.device) for name, leaf in here.items()}
        return there, self._to.record_event()

    def join(self, rows: Tree, done: Done) -> None:
        computes: Any = torch.cuda.current_stream(self.device)
        computes.wait_event(done)
        for leaf in rows.values():
            leaf.record_stream(computes)

    def scatter(self, rows: Tree, who: Tensor, aside: bool) -> Done:
        computes: Any = torch.cuda.current_stream(self.device)
        self._back.wait_stream(computes)
        span = _span(who)
        with torch.cuda.stream(self._back):
            if span is not None:
                for name, leaf in rows.items():
                    self._rows[name][span].copy_(leaf, non_blocking=True)
            elif self._kernels is not None:
                numbers = _sent(who, self._numbers[1])
                for name, leaf in rows.items():
                    self._kernels.scatter(leaf, self._rows[name], numbers)
            else:
                here = {name: leaf.cpu() for name, leaf in rows.items()}  # of all leaves, before one is changed
                for name, leaf in here.items():
                    self._rows[name].index_copy_(0, who, leaf)
        done: Done = self._back.record_event()
        for leaf in rows.values():
            leaf.record_stream(self._back)
        if not aside:
            computes.wait_event(done)
        return done

    def room(self) -> int:
        return free_memory(self.device)


def _pinned(*shape: int, dtype: torch.dtype) -> Tensor:
    """Memory that the GPU reaches. What was freed is taken again as soon as torch's copies from it are done."""
    try:
        return torch.empty(*shape, dtype=dtype, pin_memory=True)
    except RuntimeError:  # the system pins no more; from other memory the same arrives, but is waited for
        return torch.empty(*shape, dtype=dtype)


def _sent(who: Tensor, into: Tensor) -> Tensor:
    """Clients' numbers on the GPU, in memory that the stream of now has done with; nobody waits for them."""
    return into[: len(who)].copy_(_pinned(len(who), dtype=who.dtype).copy_(who), non_blocking=True)


def _span(who: Tensor) -> slice | None:
    """The clients as a slice, if one comes after the other."""
    first, clients = int(who[0]), len(who)
    if int(who[-1]) - first != clients - 1 or not torch.equal(who, torch.arange(first, first + clients)):
        return None
    return slice(first, first + clients)


def _wait(*streams: Any) -> None:
    with suppress(RuntimeError):  # a GPU that has failed moves nothing any more
        for stream in streams:
            stream.synchronize()
