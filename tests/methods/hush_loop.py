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
    """The shared model and the clients' v after all rounds, one client after the other, as Hush is described."""
    w, velocity = task.start().numpy(), np.zeros(D)
    said: list[Vector] = []  # w after every round
    tie = w
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
                    v[k] = v[k] - 0.2 * (slope(k, v[k]) + method.lam * (v[k] - tie))
        velocity = method.beta * velocity + U.T @ np.average(sent, axis=0, weights=n)
        w = w + velocity
        said.append(w)
        tie = w if method.average is None else mean_of(said, method.average)
    return tie, np.stack(v)


def mean_of(said: list[Vector], average: float) -> Vector:
    """The running mean of all that w was, with the weight of each written out."""
    shares = [max(average, 1 / (t + 1)) for t in range(len(said))]
    weights = [a * np.prod([1 - later for later in shares[t + 1 :]]) for t, a in enumerate(shares)]
    assert abs(sum(weights) - 1) < 1e-12, "where training starts from is not in it"
    return np.asarray(sum(weight * w for weight, w in zip(weights, said, strict=True)))
