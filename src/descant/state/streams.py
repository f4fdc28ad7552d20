"""Copies between the processor's memory and a GPU's that go on while it works: one stream for each way."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from descant.execution.device import free_memory
from descant.trees import Tree


class Done(Protocol):
    """Tells when copies are done: an event of a GPU."""

    def query(self) -> bool:
        """Whether they are."""
        ...

    def synchronize(self) -> None:
        """Wait until they are."""
        ...


class Ways(Protocol):
    """What copies rows to a device and back, in the order in which each way is asked."""

    device: torch.device

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Memory of the processor that rows travel from and to."""
        ...

    def bring(self, rows: Tree) -> tuple[Tree, Done]:
        """Begin to copy rows to the device. They are there for who has called `join`."""
        ...

    def join(self, rows: Tree, done: Done) -> None:
        """Let what is asked of the device from now on wait for rows that were brought."""
        ...

    def send(self, rows: Tree, into: Tree, aside: bool) -> Done:
        """Begin to copy rows back, after what was asked of the device up to now.

        What is asked from now on waits until they were read, unless they lie `aside`, where nobody changes them.
        """
        ...

    def room(self) -> int:
        """The bytes of the device that are free."""
        ...


class Streams:
    """The two ways beside the stream that computes, so that both are used at once and neither holds up the work."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._to: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._back: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Pinned memory. What was freed is taken again as soon as the copies that it served are done."""
        try:
            return torch.empty(*shape, dtype=dtype, pin_memory=True)
        except RuntimeError:  # the system pins no more; from other memory the same arrives, but is waited for
            return torch.empty(*shape, dtype=dtype)

    def bring(self, rows: Tree) -> tuple[Tree, Done]:
        # The memory is this stream's own: that of the stream that computes would be free only after its work.
        with torch.cuda.stream(self._to):
            there = {name: leaf.to(self.device, non_blocking=True) for name, leaf in rows.items()}
        return there, self._to.record_event()

    def join(self, rows: Tree, done: Done) -> None:
        computes: Any = torch.cuda.current_stream(self.device)
        computes.wait_event(done)
        for leaf in rows.values():
            leaf.record_stream(computes)

    def send(self, rows: Tree, into: Tree, aside: bool) -> Done:
        computes: Any = torch.cuda.current_stream(self.device)
        self._back.wait_stream(computes)
        with torch.cuda.stream(self._back):
            for name, leaf in into.items():
                leaf.copy_(rows[name], non_blocking=True)
                if rows[name].is_cuda:
                    rows[name].record_stream(self._back)
        done: Done = self._back.record_event()
        if not aside:
            computes.wait_event(done)
        return done

    def room(self) -> int:
        return free_memory(self.device)
