"""A plain NumPy loop over clients: the tests' linear model, trained by full gradients, one client at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from descant import FederatedData, Run
from descant.draws import normal

Vector = NDArray[np.float64]
SEED = 5


def trained(
    w: Vector, x: Vector, y: NDArray[np.int64], lr: float, steps: int, correction: Vector | float = 0.0
) -> Vector:
    """What `steps` full gradients of the mean cross entropy make of w: 3 x 4 weights, then 3 biases."""
    w = w.copy()
    for _ in range(steps):
        W, b = w[:12].reshape(3, 4), w[12:]
        scores = x @ W.T + b
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        w -= lr * (np.concatenate([(p.T @ x / len(y)).ravel(), p.mean(0)]) + correction)
    return w


def locally(w: Vector, data: FederatedData, lr: float, steps: int) -> list[Vector]:
    """The models w_k of all clients after a round from w."""
    clients = [data.train.client(k) for k in range(len(data))]
    return [trained(w, x.numpy(), y.numpy(), lr, steps) for x, y in clients]


def drawn(name: str, round: int, client: int, numbers: int = 1) -> Vector:
    """What a client draws from N(0, 1) by name in a round, number by number."""
    found: Vector = np.array([float(normal(SEED, "each", round, name, client, j)) for j in range(numbers)])
    return found


def shared(run: Run) -> Vector:
    """The global model of a run's last round."""
    found: Vector = torch.nn.utils.parameters_to_vector(run.shared(round="last").parameters()).detach().numpy()
    return found
