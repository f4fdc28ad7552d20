"""lp-proj's Algorithm 1 as a plain NumPy loop over clients, and runs to compare with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from descant import FederatedData, Run, Task, simulate
from descant.coupling import Projection
from descant.engine.cohort import sample
from descant.methods import Method
from tests import held
from tests.methods.runs import SEED, Vector

ROUNDS, D = 4, 15


def mean(messages: Vector) -> Vector:
    average: Vector = messages.mean(0)
    return average


@dataclass
class Oracle:
    """Algorithm 1, client by client. pFedMe and RSA are P = I and p = 2 or 1, with w^0 the initial model."""

    slope: Any
    theta: Vector
    cohort: int = 7
    everyone: bool = False
    aggregate: Callable[[Vector], Vector] = mean

    def run(
        self,
        P: Vector,
        p: float,
        w: Vector,
        *,
        lr: float,
        lam: float,
        eta: Callable[[int], float],
        R: int,
        steps: int | None = None,
        nu: Callable[[int], float] | None = None,
        cap: int = 0,
    ) -> tuple[Vector, Vector]:
        x = np.tile(self.theta, (7, 1))
        for t in range(1, ROUNDS + 1):
            cohort = sample(SEED, t, self.cohort, torch.ones(7)).tolist()
            w_k = {}
            for k in range(7) if self.everyone else cohort:
                w_k[k] = w
                for _ in range(R):
                    for step in range(steps or cap + 1):
                        g = self.slope(k, x[k]) - lam * P.T @ self.sign(w_k[k] - P @ x[k], p)  # of (3)
                        if nu is not None and (g @ g <= nu(t) or step == cap):
                            break
                        x[k] = x[k] - lr * g
                    w_k[k] = w_k[k] - eta(t) * lam * self.sign(w_k[k] - P @ x[k], p)  # (4)
            w = self.aggregate(np.stack([w_k[k] for k in cohort]))
        return w, x

    def sign(self, c: Vector, p: float) -> Vector:
        """The derivative of |c|^p / p; what is not a number does not pull, as in the authors' code."""
        return np.array([0.0 if ci == 0 or np.isnan(ci) else np.copysign(abs(ci) ** (p - 1), ci) for ci in c])


def matrix(projection: Projection, dim: int) -> Vector:
    """P itself: its rows are the lifts of the unit vectors."""
    eye = torch.eye(dim, dtype=torch.float64)
    P: Vector = projection.build(SEED, dim, torch.zeros(1, D, dtype=torch.float64)).lift(eye).numpy()
    return P


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    """It may collapse."""
    return simulate(
        task, data, method, **{"rounds": ROUNDS, "seed": SEED, "evaluate": 100, "mode": "vmap"} | settings
    )


def reference(done: Run) -> Tensor:
    """w, which lp-proj shows to nobody, [dim]."""
    assert done.collapse is None
    return held.by_server(done)["w"]
