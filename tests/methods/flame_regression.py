"""Linear regressions, on which the statements of FLAME's paper are closed forms, and FLAME's states on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from descant import FederatedData, Metric, Task
from descant.aggregators import Mean
from descant.codecs import Native
from descant.engine import Evaluation, Plan, RoundRecord, Simulation
from descant.execution import Vmap
from descant.methods import Method

Vector = NDArray[np.float64]
State = dict[str, Vector]
D, SEED = 3, 4


def half_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs[:, 0] - targets).square()


@dataclass(frozen=True)
class Regression:
    """f_i(x) = ||X_i x - y_i||^2 / 2 n_i, of clients of different sizes."""

    clients: list[tuple[Vector, Vector]]

    @classmethod
    def drawn(cls, m: int, smoothness: float, seed: int = 0, least: float = 0.2) -> Regression:
        """m clients whose A_i have eigenvalues from `least` times the smoothness up to it."""
        rng, clients = np.random.default_rng(seed), []
        for _ in range(m):
            n = int(rng.integers(D, 12))
            U, V = np.linalg.qr(rng.normal(size=(n, D)))[0], np.linalg.qr(rng.normal(size=(D, D)))[0]
            X = U @ np.diag(np.sqrt(n * smoothness * np.linspace(least, 1, D))) @ V
            clients.append((X, X @ rng.normal(size=D) + rng.normal(size=n)))
        return cls(clients)

    @cached_property
    def n(self) -> Vector:
        return np.array([len(y) for _, y in self.clients], dtype=np.float64)

    @cached_property
    def A(self) -> list[Vector]:  # noqa: N802
        return [X.T @ X / len(y) for X, y in self.clients]

    @cached_property
    def b(self) -> list[Vector]:
        return [X.T @ y / len(y) for X, y in self.clients]

    def alpha(self, weighted: bool) -> Vector:
        return self.n / self.n.sum() if weighted else np.full(len(self.n), 1 / len(self.n))

    def loss(self, i: int, x: Vector) -> float:
        X, y = self.clients[i]
        return float(np.mean((X @ x - y) ** 2) / 2)

    def slope(self, i: int, x: Vector) -> Vector:
        return self.A[i] @ x - self.b[i]

    def solution(self, lam: float, alpha: Vector, P: Vector) -> tuple[Vector, Vector]:
        """w and theta_i of min sum_i alpha_i (f_i(theta_i) + lam/2 ||w - P theta_i||^2), from its optimality:
        theta_i = (A_i + lam P'P)^-1 (b_i + lam P'w) and w = sum_i alpha_i P theta_i. P = I is (135)."""
        R = [np.linalg.inv(A + lam * P.T @ P) for A in self.A]
        left = np.eye(len(P)) - sum(a * lam * P @ r @ P.T for a, r in zip(alpha, R, strict=True))
        right = sum(a * P @ r @ b for a, r, b in zip(alpha, R, self.b, strict=True))
        w = np.linalg.solve(left, right)
        return w, np.stack([r @ (b + lam * P.T @ w) for r, b in zip(R, self.b, strict=True)])

    def consensus(self, alpha: Vector) -> Vector:
        """The minimiser of sum_i alpha_i f_i: what FedADMM solves (19)."""
        together = zip(alpha, self.A, self.b, strict=True)
        A, b = map(sum, zip(*((a * A, a * b) for a, A, b in together), strict=True))
        return np.linalg.solve(A, b)

    def lagrangian(self, s: State, lam: float, rho: float, alpha: Vector) -> float:
        """(10)."""
        total = 0.0
        for i, a in enumerate(alpha):
            theta, w_i, apart = s["theta"][i], s["w_i"][i], s["w_i"][i] - s["w"]
            total += a * (self.loss(i, theta) + lam / 2 * np.sum((theta - w_i) ** 2))
            total += s["pi"][i] @ apart + rho / 2 * apart @ apart
        return total

    def watch(self, method: Method, rounds: int, cohort: int | None = None, start: float = 0.0) -> Iterator[State]:
        """The state before the first round and after each."""
        simulation = self.simulation(method, rounds, cohort, start)
        yield state_of(simulation)
        for record in simulation.run():
            if isinstance(record, RoundRecord):
                assert record.figures.get("capped", 0) == 0  # or the inexact rule was not met
                yield state_of(simulation)

    def last(self, method: Method, rounds: int, cohort: int | None = None) -> State:
        simulation = self.simulation(method, rounds, cohort)
        for record in simulation.run():
            assert not isinstance(record, RoundRecord) or record.figures.get("capped", 0) == 0
        return state_of(simulation)

    def simulation(self, method: Method, rounds: int, cohort: int | None, start: float = 0.0) -> Simulation:
        module = nn.Linear(D, 1, bias=False).double()
        nn.init.constant_(module.weight, start)
        metric = Metric("error", half_squared_error, higher_is_better=False)
        task = Task(module, loss=half_squared_error, metric=metric)
        data = FederatedData.from_arrays([{"train": client} for client in self.clients])
        quiet: dict[str, Any] = {"keep_nonfinite": False, "drop_last": False, "own_start": False, "chunk": None}
        plan = Plan(
            rounds=rounds,
            cohort=cohort or len(data),
            seed=SEED,
            sampling="uniform",
            trainers="cohort",
            stragglers=0.0,
            evaluation=Evaluation(every=10**9, parts=("train",), models=("personal",)),
            aggregator=Mean(),
            codec=Native(),
            **quiet,
        )
        return Simulation(Vmap(task), data, method, plan, len(data))


def state_of(simulation: Simulation) -> State:
    leaves = {**simulation.server.state, **simulation.store.leaves}
    return {name: leaf.numpy().copy() for name, leaf in leaves.items()}


def distance(found: Vector, expected: Vector) -> float:
    return float(np.abs(found - expected).max())


ONE_STEP: dict[str, Any] = {"steps": 1, "lr": 0.3, "batch": None}
