"""The clients' steps as compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from descant.execution.base import Vmap
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
        """Make programs for another number of clients from now on; let go of the others, and of their memory."""
        self.clients = clients
        self.programs.clear()
        self._pool = None

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
