"""Ditto as a plain NumPy loop over clients, written from the paper, and runs of Ditto with the loop's rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from descant import FederatedData, Run, Task
from descant.engine.cohort import sample
from descant.methods import Ditto, FedAvg, Method
from tests.methods import runs
from tests.methods.runs import SEED, Vector

ROUNDS = 6


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    return runs.run(task, data, method, **{"rounds": ROUNDS} | settings)


@dataclass
class Oracle:
    """Line by line over clients: `solve` are the solver's rounds, `tune` is line 6."""

    slope: Any
    theta: Vector
    sizes: list[int]
    cohort: int = 7
    everyone: bool = False
    steps: int = 4
    lr: float = 0.2
    solver_steps: int = 3
    solver_lr: float = 0.3

    def who(self, t: int) -> tuple[list[int], list[int]]:
        """Whose messages count, and who trains, in round t = 1, 2, ..."""
        cohort = sample(SEED, t, self.cohort, torch.ones(len(self.sizes))).tolist()
        return cohort, list(range(len(self.sizes))) if self.everyone else cohort

    def solve(self, w: Vector, t: int) -> Vector:
        cohort, _ = self.who(t)
        n = sum(self.sizes[k] for k in cohort)
        update = np.zeros_like(w)
        for k in cohort:
            x = w
            for _ in range(self.solver_steps):
                x = x - self.solver_lr * self.slope(k, x)
            update += self.sizes[k] / n * (x - w)
        return w + update

    def tune(self, k: int, v: Vector, w: Vector, lam: float) -> Vector:
        for _ in range(self.steps):
            v = v - self.lr * (self.slope(k, v) + lam * (v - w))
        return v

    def finetuned(self, lams: tuple[float, ...], after: int) -> tuple[Vector, dict[int, list[Vector]]]:
        """w* and, of the clients that have begun, one model for every lambda."""
        w, v = self.theta, {}
        for t in range(1, ROUNDS + 1):
            if t <= after:
                w = self.solve(w, t)
                continue
            for k in self.who(t)[1]:
                before = v.get(k, [w] * len(lams))
                v[k] = [self.tune(k, x, w, lam) for x, lam in zip(before, lams, strict=True)]
        return w, v

    def joint(self, lams: tuple[float, ...], silent: bool = False) -> tuple[Vector, list[list[Vector]]]:
        w, heard = self.theta, [self.theta for _ in self.sizes]
        v = [[self.theta] * len(lams) for _ in self.sizes]
        for t in range(1, ROUNDS + 1):
            rests = silent and t % 2 == 0
            for k in self.who(t)[1]:
                heard[k] = heard[k] if rests else w
                v[k] = [self.tune(k, x, heard[k], lam) for x, lam in zip(v[k], lams, strict=True)]
            w = w if rests else self.solve(w, t)
        return w, v


def ditto(**settings: Any) -> Ditto:
    """Ditto with the oracle's rates."""
    solver = settings.pop("solver", FedAvg(lr=0.3, steps=3, batch=None))
    return Ditto(**{"lr": 0.2, "steps": 4, "batch": None, "solver": solver} | settings)
