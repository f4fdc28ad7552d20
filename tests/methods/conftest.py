"""A small federation of ragged clients in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from descant import FederatedData, Task

Vector = NDArray[np.float64]

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


Slope = Callable[[int, Vector], Vector]


@pytest.fixture(scope="session")
def slope(data: FederatedData) -> Slope:
    """slope(k, theta): client k's gradient at the parameters of `linear`, worked out by hand in NumPy."""
    clients = [(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(len(data)))]

    def of(k: int, theta: Vector) -> Vector:
        X, y = clients[k]
        W, b = theta[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), theta[CLASSES * FEATURES :]
        e = np.exp(X @ W.T + b)
        G = (e / e.sum(1, keepdims=True) - (y[:, None] == np.arange(CLASSES))) / len(y)
        return np.concatenate([(G.T @ X).ravel(), G.sum(0)])

    return of


@pytest.fixture(scope="session")
def slope_mlp(data: FederatedData) -> Slope:
    """slope_mlp(k, theta): the same at the parameters A, a, W, b of `mlp`, by hand-written back-propagation."""
    clients = [(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(len(data)))]

    def of(k: int, theta: Vector) -> Vector:
        X, y = clients[k]
        A, a, W, b = np.split(theta, np.cumsum([5 * FEATURES, 5, CLASSES * 5]))
        H = np.tanh(X @ A.reshape(5, FEATURES).T + a)
        e = np.exp(H @ W.reshape(CLASSES, 5).T + b)
        G = (e / e.sum(1, keepdims=True) - (y[:, None] == np.arange(CLASSES))) / len(y)
        B = (G @ W.reshape(CLASSES, 5)) * (1 - H**2)
        return np.concatenate([(B.T @ X).ravel(), B.sum(0), (G.T @ H).ravel(), G.sum(0)])

    return of


@pytest.fixture(scope="session")
def regression() -> FederatedData:
    """Five clients with a linear regression each, of 18 to 40 examples in four features."""
    generator = torch.Generator().manual_seed(5)
    clients = []
    for n in (18, 40, 25, 30, 22):
        A = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
        own = torch.randn(FEATURES, generator=generator, dtype=torch.float64)
        noise = 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
        clients.append({"train": (A, A @ own + noise)})
    return FederatedData.from_arrays(clients)


@pytest.fixture(scope="session")
def plane() -> Task:
    """A linear model without a bias and the squared error: f_k(x) = |A x - b|^2 / n is a quadratic."""
    torch.manual_seed(3)
    return Task(nn.Linear(FEATURES, 1, bias=False).double(), loss="squared_error")


@pytest.fixture(scope="session")
def quadratics(regression: FederatedData) -> tuple[Vector, Vector, Vector]:
    """H [5, d, d], g [5, d] and n [5] of the clients of `regression`: the gradient of f_k at x is H_k x - g_k."""
    parts = [(A.numpy(), b.numpy()) for A, b in map(regression.train.client, range(len(regression)))]
    H = np.stack([2 * A.T @ A / len(b) for A, b in parts])
    return H, np.stack([2 * A.T @ b / len(b) for A, b in parts]), np.array([len(b) for _, b in parts], dtype=float)


@pytest.fixture(scope="session")
def two(data: FederatedData) -> FederatedData:
    """The clients of `data`, with class 2 against the others: labels 1 and -1."""
    parts = [data.train.client(k) for k in range(len(data))]
    return FederatedData.from_arrays([{"train": (X, 2.0 * (y == 2) - 1)} for X, y in parts])


@pytest.fixture(scope="session")
def score() -> Task:
    """One score an example."""
    torch.manual_seed(1)
    return Task(nn.Linear(FEATURES, 1).double(), loss="hinge")
