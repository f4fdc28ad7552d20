"""FLAME, lp-proj-2 by ADMM and FedADMM equal slow, plain NumPy loops that were written from the pseudo-code.

The loops know neither torch nor descant; who takes part in a round and the random P are handed to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from descant import FederatedData, Run, Task, simulate
from descant.coupling import Dense, Projection
from descant.engine.cohort import sample
from descant.methods import FLAME, FedADMM, LpProjADMM, Method
from tests import held
from tests.coupling.projecting import KINDS

Vector = NDArray[np.float64]
Settings = dict[str, Any]
ROUNDS, SEED, TOLERANCE = 4, 3, 1e-10


@dataclass
class Oracle:
    """The clients' examples, and who trains and who is heard in each round."""

    clients: list[tuple[Vector, NDArray[np.int64]]]
    start: Vector
    heard: list[list[int]]
    capped: list[int] = field(default_factory=list)  # local problems that met the cap, by round

    def gradient(self, i: int, theta: Vector) -> Vector:
        """Of client i's mean cross entropy, for softmax(X W' + b) with theta = (W row by row, b)."""
        X, y = self.clients[i]
        classes = len(theta) // (X.shape[1] + 1)
        W, b = theta[: classes * X.shape[1]].reshape(classes, -1), theta[classes * X.shape[1] :]
        scores = X @ W.T + b
        G = np.exp(scores - scores.max(axis=1, keepdims=True))
        G /= G.sum(axis=1, keepdims=True)
        G[np.arange(len(y)), y] -= 1
        return np.concatenate([(G.T @ X).ravel(), G.sum(axis=0)]) / len(y)

    def descend(self, slope: Any, theta: Vector, alpha: float, eps: float | None, lr: float, steps: int) -> Vector:
        """So many steps; or, with eps, until (17) holds, for no more than so many."""
        for _ in range(steps):
            g = slope(theta)
            if eps is not None and alpha**2 * (g @ g) <= eps:
                return theta
            theta = theta - lr * g
        self.capped[-1] += eps is not None
        return theta

    def alphas(self, weighted: bool, told: dict[int, int]) -> list[float]:
        """1/m, or n_i/n, where the n_i that the server was not told are the mean of the others."""
        m = len(self.clients)
        if not weighted or not told:
            return [1 / m] * m
        n = sum(told.values()) + (m - len(told)) * sum(told.values()) / len(told)
        return [len(y) / n for _, y in self.clients]

    def flame(
        self,
        w0: Vector,
        P: Vector,
        *,
        lam: float,
        rho: float,
        lr: float,
        steps: int,
        eps: float | None = None,
        upsilon: float = 0.5,
        weighted: bool = False,
        pull: str = "local",
        dual: bool = True,
    ) -> dict[str, Any]:
        """Algorithm 2; Algorithm 1 is P = I."""
        m = len(self.clients)
        theta, w_i, pi, u = [self.start] * m, [w0] * m, [0 * w0] * m, [w0] * m
        eps_i, w, told = [eps] * m, w0, dict[int, int]()
        for heard in self.heard:
            alpha, new_u = self.alphas(weighted, told), dict[int, Vector]()
            self.capped.append(0)
            for i in heard:
                if eps is not None:
                    eps_i[i] = upsilon * eps_i[i]  # (18)
                anchor = w_i[i] if pull == "local" else w

                def slope(x: Vector, i: int = i, anchor: Vector = anchor) -> Vector:
                    return self.gradient(i, x) + lam * P.T @ (P @ x - anchor)  # line 12

                theta[i] = self.descend(slope, theta[i], alpha[i], eps_i[i], lr, steps)
                w_i[i] = (lam * alpha[i] * P @ theta[i] + rho * w - pi[i]) / (lam * alpha[i] + rho)  # line 14
                if dual:
                    pi[i] = pi[i] + rho * (w_i[i] - w)  # line 15
                new_u[i] = w_i[i] + pi[i] / rho  # line 16
            for i in heard:
                u[i] = new_u[i]
                told[i] = len(self.clients[i][1])
            w = sum(u) / m  # line 5 of the next round
        return {"w": w, "u": u, "theta": theta, "w_i": w_i, "pi": pi}

    def fedadmm(
        self,
        *,
        rho: float,
        lr: float,
        steps: int,
        eps: float | None = None,
        upsilon: float = 0.5,
        weighted: bool = False,
        dual: bool = True,
        reset: bool = False,
    ) -> dict[str, Any]:
        m, w = len(self.clients), self.start
        theta, pi, u = [w] * m, [0 * w] * m, [w] * m
        eps_i, told = [eps] * m, dict[int, int]()
        for heard in self.heard:
            alpha, new_u = self.alphas(weighted, told), dict[int, Vector]()
            self.capped.append(0)
            for i in heard:
                if eps is not None:
                    eps_i[i] = upsilon * eps_i[i]

                def slope(x: Vector, i: int = i, w: Vector = w, a: float = alpha[i]) -> Vector:
                    return (a * self.gradient(i, x) + pi[i] + rho * (x - w)) / a

                theta[i] = self.descend(slope, w if reset else theta[i], alpha[i], eps_i[i], lr, steps)
                if dual:
                    pi[i] = pi[i] + rho * (theta[i] - w)
                new_u[i] = theta[i] + pi[i] / rho
            for i in heard:
                u[i] = new_u[i]
                told[i] = len(self.clients[i][1])
            w = sum(u) / m
        return {"w": w, "u": u, "theta": theta, "pi": pi}


def oracle(data: FederatedData, task: Task, cohort: int) -> Oracle:
    heard = [sample(SEED, t, cohort, torch.ones(len(data))).tolist() for t in range(1, ROUNDS + 1)]
    return Oracle(
        clients=[(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(len(data)))],
        start=task.start().numpy(),
        heard=heard,
    )


def run(task: Task, data: FederatedData, method: Method, cohort: int) -> Run:
    settings: Settings = {"rounds": ROUNDS, "seed": SEED, "evaluate": ROUNDS, "mode": "vmap"}
    return simulate(task, data, method, cohort=cohort, **settings)


def check(run: Run, expected: dict[str, Any]) -> None:
    assert run.collapse is None
    found = held.by_server(run) | held.by_clients(run)
    assert set(expected) <= set(found)
    for name, leaf in expected.items():
        assert np.abs(found[name].numpy() - np.array(leaf)).max() <= TOLERANCE, name
    personal = held.personal(run)
    deployed = found["theta"] if held.simulation(run).method.personalizes else found["w"].expand_as(personal)
    assert torch.equal(personal, deployed)


PARTICIPATION = pytest.mark.parametrize("cohort", [7, 3])  # of seven
OPTIONS = [{}, {"weighted": True}, {"dual": False}]


@pytest.mark.few(2)
@PARTICIPATION
@pytest.mark.parametrize("option", [*OPTIONS, {"pull": "global"}], ids=str)
def test_flame(data: FederatedData, linear: Task, cohort: int, option: Settings) -> None:
    settings: Settings = {"lam": 1.3, "rho": 0.2, "lr": 0.1, "steps": 4, **option}
    told = oracle(data, linear, cohort)
    check(
        run(linear, data, FLAME(batch=None, **settings), cohort),
        told.flame(told.start, np.eye(len(told.start)), **settings),
    )


@pytest.mark.few(2)
@PARTICIPATION
@pytest.mark.parametrize("option", [*OPTIONS, {"pull": "global"}], ids=str)
def test_lp_proj_2_by_admm(data: FederatedData, linear: Task, cohort: int, option: Settings) -> None:
    settings: Settings = {"lam": 1.3, "rho": 0.2, "lr": 0.1, "steps": 4, **option}
    told, dim = oracle(data, linear, cohort), 6
    P = Dense().build(SEED, dim, linear.start()[None]).lift(torch.eye(dim, dtype=torch.float64)).numpy()
    done = run(linear, data, LpProjADMM(batch=None, dim=dim, **settings), cohort)
    check(done, told.flame(np.zeros(dim), P, **settings))
    assert done.history.rounds[0]["bytes_up"] == cohort * (8 * dim + (4 if "weighted" in option else 0))


@pytest.mark.few(3)
@pytest.mark.parametrize("projection", KINDS.values(), ids=KINDS)
def test_lp_proj_2_by_admm_with_any_projection(data: FederatedData, linear: Task, projection: Projection) -> None:
    settings: Settings = {"lam": 1.3, "rho": 0.2, "lr": 0.1, "steps": 4}
    P = projection.build(SEED, 6, linear.start()[None], linear.layout)
    A = P.lift(torch.eye(P.dim, dtype=torch.float64)).numpy()
    done = run(linear, data, LpProjADMM(batch=None, dim=P.dim, projection=projection, **settings), 3)
    check(done, oracle(data, linear, 3).flame(np.zeros(P.dim), A, **settings))


@pytest.mark.few(4)
@PARTICIPATION
@pytest.mark.parametrize("option", [*OPTIONS, {"reset": True}], ids=str)
def test_fedadmm(data: FederatedData, linear: Task, cohort: int, option: Settings) -> None:
    settings: Settings = {"rho": 0.2, "lr": 0.1, "steps": 4, **option}
    told = oracle(data, linear, cohort)
    done = run(linear, data, FedADMM(batch=None, **settings), cohort)
    check(done, told.fedadmm(**settings))


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("method", [FLAME, FedADMM])
def test_the_inexact_rule_or_the_cap(
    data: FederatedData, linear: Task, cohort: int, method: type[FLAME] | type[FedADMM]
) -> None:
    """(17) with an eps_i of its own for every client, which shrinks only in the rounds that it takes part in."""
    settings: Settings = {"rho": 0.1, "lr": 0.2, "eps": 4e-4, "upsilon": 0.4, "weighted": True}
    settings |= {"lam": 1.3} if method is FLAME else {}
    told = oracle(data, linear, cohort)
    done = run(linear, data, method(batch=None, cap=6, **settings), cohort)
    if method is FLAME:
        check(done, told.flame(told.start, np.eye(len(told.start)), steps=6, **settings))
    else:
        check(done, told.fedadmm(steps=6, **settings))
    assert 0 < sum(told.capped) < sum(map(len, told.heard))  # some met the rule, some the cap
    assert [row["capped"] for row in done.history.rounds] == told.capped
    took_part = np.bincount(np.concatenate(told.heard), minlength=len(data))
    assert np.allclose(held.by_clients(done)["eps"], 4e-4 * 0.4**took_part, rtol=1e-12, atol=0)
