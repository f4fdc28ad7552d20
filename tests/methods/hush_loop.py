"""Hush, one client after the other, from its description: the subspace of a step, and a plain NumPy loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from descant import FederatedData, Run, Task
from descant.draws import seed_of
from descant.methods import Ditto, Hush, Local
from tests.methods import runs
from tests.methods.runs import SEED, N, Vector, cohort_of

ROUNDS, M, D = 4, 5, 15  # D: the parameters of `linear`
FULL: dict[str, Any] = {"m": M, "lr": 0.2, "steps": 3, "batch": None, "bits": None}


def run(task: Task, data: FederatedData, method: Hush | Ditto | Local, **settings: Any) -> Run:
    return runs.run(task, data, method, **{"rounds": ROUNDS} | settings)


def matrix(method: Hush, step: int, task: Task) -> Vector:
    """U of a step, as a matrix."""
    turn = step if method.pool is None else step % method.pool
    seed = seed_of(SEED, "projection", turn + 1) if method.projection.fresh else SEED
    S = method.projection.build(seed, M, task.start()[None], task.layout)
    U: Vector = method.stretch(D) * S.lift(torch.eye(M, dtype=torch.float64)).numpy()
    return U


def loop(method: Hush, task: Task, data: FederatedData, slope: Any, cohort: int, everyone: bool) -> Any:
    """w and the clients' v after all rounds, one client after the other, from the method's description."""
    w, velocity = task.start().numpy(), np.zeros(D)
    v = [w for _ in range(N)]
    for t in range(1, ROUNDS + 1):
        U, sent, n = matrix(method, t - 1, task), [], []
        for k in range(N):
            if k in cohort_of(t, cohort):
                q = np.zeros(M)
                for _ in range(3):
                    q = q - 0.2 * U @ slope(k, w + U.T @ q)
                sent.append(q)
                n.append(int(data.train.sizes[k]) if method.weighted else 1)
            if everyone or k in cohort_of(t, cohort):
                for _ in range(3):
                    v[k] = v[k] - 0.2 * (slope(k, v[k]) + method.lam * (v[k] - w))
        velocity = method.beta * velocity + U.T @ np.average(sent, axis=0, weights=n)
        w = w + velocity
    return w, np.stack(v)
