"""The clients' steps as compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

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

    def width(self, clients: int, first: bool) -> int:
        width = self.clients
        while not first and (width + 1) // 2 >= clients and width > 1:
            width = (width + 1) // 2
        return max(width, clients)
