"""The clients' steps as programs that are made once: compiled, or captured as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from descant.execution.base import Vmap
from descant.execution.programs import compiled
from descant.task.task import Task


class Compile(Vmap):
    """vmap under torch.compile, a program for each kind of step and of tensors (`descant.execution.steps`).

    vmap is specialised on the number of clients, so programs come for a few numbers only: `clients`, and its
    halves for when most clients have finished.
    """

    mode = "compile"

    def __init__(self, task: Task, clients: int) -> None:
        super().__init__(task)
        self.clients = clients
        self.programs: dict[Hashable, Callable[..., Any]] = {}
        self._pool: Any = None

    def resize(self, clients: int) -> None:
        self.clients = clients
        self.release()

    def release(self) -> None:
        self.programs.clear()
        self._pool = None

    def program(self, function: Callable[..., Any], on_cpu: bool = False) -> Callable[..., Any]:
        """A program that does what a function does, for arguments of one signature."""
        return compiled(function, len(self.programs), on_cpu)

    @property
    def pool(self) -> Any:
        """The memory that CUDA graphs work in."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def width(self, clients: int, first: bool) -> int:
        width = self.clients
        while not first and (width + 1) // 2 >= clients and width > 1:
            width = (width + 1) // 2
        return max(width, clients)


class Graphed(Compile):
    """vmap on a GPU: its kernels as they are, captured as a CUDA graph (`descant.execution.captured`).

    Nothing is compiled, so that short runs gain as well: the processor launches a step at once, and not kernel by
    kernel.
    """

    mode = "vmap"

    def program(self, function: Callable[..., Any], on_cpu: bool = False) -> Callable[..., Any]:
        return function
