"""A small federation of ragged clients in float64."""

import pytest
import torch
from torch import nn

from descant import FederatedData, Task

SIZES = (6, 1, 9, 4, 13, 2, 7)
FEATURES, CLASSES = 4, 3


@pytest.fixture(scope="session")
def data() -> FederatedData:
    """Seven clients of 1 to 13 examples, each with a labelling of its own."""
    generator = torch.Generator().manual_seed(7)
    clients = []
    for n in SIZES:
        inputs = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
        own = torch.randn(FEATURES, CLASSES, generator=generator, dtype=torch.float64)
        targets = (inputs @ own).argmax(1)
        clients.append({"train": (inputs, targets)})
    return FederatedData.from_arrays(clients, classes=CLASSES)


@pytest.fixture(scope="session")
def linear() -> Task:
    torch.manual_seed(1)
    return Task(nn.Linear(FEATURES, CLASSES).double())


@pytest.fixture(scope="session")
def mlp() -> Task:
    torch.manual_seed(2)
    return Task(nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double())


@pytest.fixture(scope="session")
def at_zero() -> Task:
    """The linear model, started at zero."""
    module = nn.Linear(FEATURES, CLASSES).double()
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return Task(module)
