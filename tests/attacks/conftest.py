"""Federations to attack."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task


@pytest.fixture(scope="session")
def labelled() -> FederatedData:
    """Five clients of ragged sizes, with three classes, and a few examples to validate and test on."""
    clients = []
    for k, n in enumerate((40, 7, 25, 1, 60)):
        generator = torch.Generator().manual_seed(k)
        x = torch.randn(n + 4, 4, generator=generator, dtype=torch.float64)
        y = torch.randint(3, (n + 4,), generator=generator)
        cuts = {"valid": slice(0, 2), "test": slice(2, 4), "train": slice(4, None)}
        clients.append({part: (x[cut], y[cut]) for part, cut in cuts.items()})
    return FederatedData.from_arrays(clients, classes=3)


@pytest.fixture(scope="session")
def linear() -> Task:
    torch.manual_seed(1)
    return Task(nn.Linear(4, 3).double())


@pytest.fixture(scope="session")
def everyone() -> Tensor:
    return torch.arange(5)
