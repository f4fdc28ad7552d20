"""Mail to encode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from descant import Task
from descant.context import Context
from descant.mail import Mail
from descant.trees import Tree

Post = Callable[..., Mail]


@pytest.fixture(scope="session")
def post() -> Post:
    """post(leaves, references): mail of as many senders as the leaves [S, ...] have rows."""
    task = Task(nn.Linear(2, 1))
    ctx = Context(1, 0, 100, task.layout, task.start(), 3)

    def of(leaves: Mapping[str, Tensor], references: Tree | None = None) -> Mail:
        senders = len(next(iter(leaves.values()))) if leaves else 2
        return replace(Mail.of(leaves, torch.arange(senders), ctx), references=references or {})

    return of
