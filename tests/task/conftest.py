"""Padded batches of ragged clients, and what plain torch computes for one of them."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from descant.execution import Execution
from descant.task import Batch, Objective

Examples = tuple[Tensor, Tensor]


def _padded(clients: list[Examples], pad: float = 0.0) -> Batch:
    """Ragged clients as one batch; rows that only pad hold `pad` as inputs and 0 as targets."""
    width = max(len(inputs) for inputs, _ in clients)

    def pad_to_width(rows: Tensor, value: float) -> Tensor:
        filler = torch.full((width - len(rows), *rows.shape[1:]), value, dtype=rows.dtype)
        return torch.cat([rows, filler])

    mask = torch.stack([torch.arange(width) < len(inputs) for inputs, _ in clients])
    return Batch(
        torch.stack([pad_to_width(inputs, pad) for inputs, _ in clients]),
        torch.stack([pad_to_width(targets, 0) for _, targets in clients]),
        mask,
        torch.arange(len(clients)),
    )


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """torch's own, which wants the classes on the second axis."""
    return functional.cross_entropy(outputs.movedim(-1, 1), targets)


def _plain(
    model: nn.Module,
    x: Tensor,
    examples: Examples,
    loss: Callable[[Tensor, Tensor], Tensor] = _cross_entropy,
) -> tuple[Tensor, nn.Module]:
    """What a user would write for one client: the gradient [d], and the module that the pass has left."""
    own = deepcopy(model).train()
    trained = [p for p in own.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(x.clone(), trained)
    loss(own(examples[0]), examples[1]).backward()
    return torch.cat([p.grad.flatten() for p in trained if p.grad is not None]), own


def _grads(
    execution: Execution,
    x: Tensor,
    batch: Batch,
    *rows: Tensor,
    buffers: Tensor | None = None,
    objective: Objective | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients and running statistics of clients that are all active."""
    task = execution.task
    if buffers is None:
        buffers = task.buffer_start().expand(len(x), -1)
    everyone = torch.ones(len(x), dtype=torch.bool)
    return execution.grads(x, buffers, batch, everyone, objective or task.objective, rows)


def _around(start: Tensor, clients: int) -> Tensor:
    """Models x [K, d] that differ a little from each other."""
    noise = torch.randn(clients, len(start), generator=torch.Generator().manual_seed(1), dtype=start.dtype)
    return start + 0.1 * noise


@pytest.fixture(scope="session")
def padded() -> Callable[..., Batch]:
    return _padded


@pytest.fixture(scope="session")
def plain() -> Callable[..., tuple[Tensor, nn.Module]]:
    return _plain


@pytest.fixture(scope="session")
def grads() -> Callable[..., tuple[Tensor, Tensor]]:
    return _grads


@pytest.fixture(scope="session")
def around() -> Callable[[Tensor, int], Tensor]:
    return _around
