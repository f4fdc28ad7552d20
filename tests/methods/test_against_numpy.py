"""Every method equals a slow, plain NumPy loop over clients that was written from the papers' pseudo-code.

With full batches a run is deterministic mathematics. Here it is done twice: once by descant, and once by the loops
below, which know neither torch nor descant, and whose gradients are worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from descant import FederatedData, Run, Task, simulate
from descant.coupling import Dense
from descant.engine.cohort import sample
from descant.methods import Ditto, FedAvg, FedProx, Local, LpProj, Method, PFedMe
from tests import held

Vector = NDArray[np.float64]
Solver = dict[str, Any]
ROUNDS, SEED = 3, 3
TOLERANCE = 1e-10


def one_hot(labels: NDArray[np.int64], classes: int) -> Vector:
    hot: Vector = (labels[:, None] == np.arange(classes)).astype(np.float64)
    return hot


def softmax(scores: Vector) -> Vector:
    e: Vector = np.exp(scores - scores.max(axis=1, keepdims=True))
    total: Vector = e.sum(axis=1, keepdims=True)
    return e / total


def gradient_linear(theta: Vector, X: Vector, y: NDArray[np.int64], classes: int) -> Vector:
    """Mean cross entropy of softmax(X W' + b); theta is W [classes, features] row by row, then b."""
    split = classes * X.shape[1]
    W, b = theta[:split].reshape(classes, -1), theta[split:]
    G = (softmax(X @ W.T + b) - one_hot(y, classes)) / len(y)
    return np.concatenate([(G.T @ X).ravel(), G.sum(axis=0)])


def gradient_mlp(theta: Vector, X: Vector, y: NDArray[np.int64], classes: int, hidden: int = 5) -> Vector:
    """The same for softmax(tanh(X A' + a) W' + b), by hand-written back-propagation; theta is A, a, W, b."""
    ends = np.cumsum([hidden * X.shape[1], hidden, classes * hidden])
    A, a, W, b = np.split(theta, ends)
    A, W = A.reshape(hidden, -1), W.reshape(classes, hidden)
    H = np.tanh(X @ A.T + a)
    G = (softmax(H @ W.T + b) - one_hot(y, classes)) / len(y)
    B = (G @ W) * (1 - H**2)
    return np.concatenate([(B.T @ X).ravel(), B.sum(axis=0), (G.T @ H).ravel(), G.sum(axis=0)])


def signed_power(c: Vector, q: float) -> Vector:
    """The derivative of |c|^(q+1) / (q+1), coordinate by coordinate; the subgradient 0 at c = 0."""
    return np.array([0.0 if ci == 0 else np.copysign(abs(ci) ** q, ci) for ci in c])


@dataclass
class Federation:
    """The clients' data and who trains and sends in each round; each method below runs all rounds."""

    clients: list[tuple[Vector, NDArray[np.int64]]]
    theta: Vector  # the initial model
    cohorts: list[list[int]]  # whose messages count, by round
    trainers: list[list[int]]  # who trains, by round
    gradient: Callable[..., Vector]
    clip: float | None = None
    decay: float = 0.0
    capped: int = 0  # lower levels that met the cap

    def slope(self, k: int, x: Vector) -> Vector:
        X, y = self.clients[k]
        g = self.gradient(x, X, y, 3)
        if self.clip is not None and np.sqrt(g @ g) > self.clip:
            g = g * self.clip / np.sqrt(g @ g)
        return g + self.decay * x

    def fedavg(self, *, lr: float, steps: int, weighted: bool = True, mu: float = 0.0) -> list[Vector]:
        """FedAvg, Algorithm 1, and with mu > 0 FedProx, Algorithm 2: w^0, w^1, ..."""
        w = [self.theta]
        for cohort in self.cohorts:
            n = [len(self.clients[k][1]) if weighted else 1 for k in cohort]
            update = np.zeros_like(self.theta)
            for k, n_k in zip(cohort, n, strict=True):
                x = w[-1]
                for _ in range(steps):
                    x = x - lr * (self.slope(k, x) + mu * (x - w[-1]))
                update += n_k / sum(n) * (x - w[-1])
            w.append(w[-1] + update)
        return w

    def local(self, *, lr: float, steps: int) -> tuple[None, list[Vector]]:
        return None, self.ditto({}, lr=lr, steps=steps, lam=0.0)[1]

    def ditto(self, solver: Solver, *, lr: float, steps: int, lam: float) -> tuple[Vector, list[Vector]]:
        """Ditto, Algorithm 1: line 6 uses w^t, the model that the round began with."""
        w = self.fedavg(**solver) if solver else [self.theta] * (ROUNDS + 1)
        v = [self.theta for _ in self.clients]
        for t, trainers in enumerate(self.trainers):
            for k in trainers:
                for _ in range(steps):
                    v[k] = v[k] - lr * (self.slope(k, v[k]) + lam * (v[k] - w[t]))
        return w[-1], v

    def bilevel(
        self,
        w0: Vector,
        P: Vector,
        p: float,
        *,
        lr: float,
        lam: float,
        eta: float,
        R: int = 1,
        beta: float = 1.0,
        steps: int | None = None,
        nu: float = 0.0,
        cap: int = 0,
        reset: bool = False,
        weighted: bool = False,
    ) -> tuple[Vector, list[Vector]]:
        """lp-proj, Algorithm 1. pFedMe, Algorithm 1, is P = I, p = 2 and w^0 the initial model."""
        w, x = w0, [self.theta for _ in self.clients]
        for cohort, trainers in zip(self.cohorts, self.trainers, strict=True):
            w_k = {}
            for k in trainers:
                w_k[k] = w
                x[k] = w if reset else x[k]
                for _ in range(R):
                    for step in range(steps or cap + 1):
                        c = w_k[k] - P @ x[k]
                        g = self.slope(k, x[k]) - lam * P.T @ signed_power(c, p - 1)  # of (3)
                        if steps is None and (g @ g <= nu or step == cap):
                            break
                        x[k] = x[k] - lr * g
                    self.capped += steps is None and step == cap
                    c = w_k[k] - P @ x[k]
                    w_k[k] = w_k[k] - eta * lam * signed_power(c, p - 1)  # (4)
            n = {k: len(self.clients[k][1]) if weighted else 1 for k in cohort}
            w = (1 - beta) * w + beta * sum(n[k] * w_k[k] for k in cohort) / sum(n.values())
        return w, x

    def pfedme(self, **settings: Any) -> tuple[Vector, list[Vector]]:
        return self.bilevel(self.theta, np.eye(len(self.theta)), 2.0, **settings)

    def lpproj(self, *, p: float, dim: int, **settings: Any) -> tuple[Vector, list[Vector]]:
        like = torch.zeros(1, len(self.theta), dtype=torch.float64)
        P = Dense().build(SEED, dim, like).lift(torch.eye(dim, dtype=torch.float64)).numpy()
        return self.bilevel(np.zeros(dim), P, p, **settings)


def federation(data: FederatedData, task: Task, cohort: int, everyone: bool, **settings: Any) -> Federation:
    names = range(len(data))
    cohorts = [sample(SEED, t, cohort, torch.ones(len(data))).tolist() for t in range(1, ROUNDS + 1)]
    return Federation(
        clients=[(X.numpy(), y.numpy()) for X, y in map(data.train.client, names)],
        theta=task.start().numpy(),
        cohorts=cohorts,
        trainers=[list(names)] * ROUNDS if everyone else cohorts,
        **{"gradient": gradient_linear} | settings,
    )


def trained(task: Task, data: FederatedData, method: Method, cohort: int, everyone: bool) -> Run:
    trainers: Literal["cohort", "everyone"] = "everyone" if everyone else "cohort"
    settings: Solver = {"rounds": ROUNDS, "seed": SEED, "evaluate": ROUNDS, "mode": "vmap"}
    return simulate(task, data, method, cohort=cohort, trainers=trainers, **settings)


def check(run: Run, w: Vector | None, clients: list[Vector] | None) -> None:
    assert run.collapse is None
    if w is None:
        assert held.by_server(run) == {}
    else:
        assert np.abs(held.by_server(run)["w"].numpy() - w).max() <= TOLERANCE
    if clients is None:
        assert held.by_clients(run) == {}
    else:
        (state,) = held.by_clients(run).values()
        assert np.abs(state.numpy() - np.stack(clients)).max() <= TOLERANCE
        assert torch.equal(held.personal(run), state)


# Whose messages count and who trains: all, three of seven, or all while only three are heard (lp-proj, line 11).
PARTICIPATION = pytest.mark.parametrize(("cohort", "everyone"), [(7, False), (3, False), (3, True)])
GUARDS = {"clip": 0.4, "weight_decay": 0.02}


@pytest.mark.few(3)
@PARTICIPATION
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("guards", [{}, GUARDS])
def test_fedavg(
    data: FederatedData, linear: Task, cohort: int, everyone: bool, weighted: bool, guards: Solver
) -> None:
    oracle = federation(data, linear, cohort, everyone, **_guards(guards))
    method = FedAvg(lr=0.3, steps=4, batch=None, weighted=weighted, **guards)
    w = oracle.fedavg(lr=0.3, steps=4, weighted=weighted)[-1]
    check(trained(linear, data, method, cohort, everyone), w, None)


@pytest.mark.few(1)
@PARTICIPATION
def test_fedprox(data: FederatedData, linear: Task, cohort: int, everyone: bool) -> None:
    oracle = federation(data, linear, cohort, everyone)
    w = oracle.fedavg(lr=0.3, steps=4, mu=0.7)[-1]
    check(trained(linear, data, FedProx(lr=0.3, epochs=4, batch=None, mu=0.7), cohort, everyone), w, None)


@pytest.mark.few(3)
@PARTICIPATION
@pytest.mark.parametrize("guards", [{}, GUARDS])
def test_local(data: FederatedData, linear: Task, cohort: int, everyone: bool, guards: Solver) -> None:
    oracle = federation(data, linear, cohort, everyone, **_guards(guards))
    run = trained(linear, data, Local(lr=0.2, steps=6, batch=None, **guards), cohort, everyone)
    check(run, *oracle.local(lr=0.2, steps=6))


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_ditto_over_fedavg_and_over_fedprox(
    data: FederatedData, linear: Task, cohort: int, everyone: bool, mu: float
) -> None:
    oracle = federation(data, linear, cohort, everyone, decay=0.01)
    work: Solver = {"lr": 0.3, "steps": 2, "batch": None, "weight_decay": 0.01}
    solver = FedProx(mu=mu, **work) if mu else FedAvg(**work)
    method = Ditto(lr=0.1, steps=5, batch=None, lam=0.8, weight_decay=0.01, solver=solver)
    expected = oracle.ditto({"lr": 0.3, "steps": 2, "mu": mu}, lr=0.1, steps=5, lam=0.8)
    check(trained(linear, data, method, cohort, everyone), *expected)


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("option", [{}, {"reset": True}, {"weighted": True}], ids=str)
def test_pfedme(data: FederatedData, linear: Task, cohort: int, everyone: bool, option: Solver) -> None:
    settings: Solver = {"lr": 0.05, "steps": 6, "lam": 2.0, "eta": 0.3, "R": 2, "beta": 1.5, **option}
    oracle = federation(data, linear, cohort, everyone, clip=0.5, decay=0.02)
    method = PFedMe(batch=None, clip=0.5, weight_decay=0.02, **settings)
    check(trained(linear, data, method, cohort, everyone), *oracle.pfedme(**settings))


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_lp_proj(data: FederatedData, linear: Task, cohort: int, everyone: bool, p: float) -> None:
    settings: Solver = {"p": p, "dim": 6, "lr": 0.1, "steps": 5, "lam": 0.6, "eta": 0.2, "R": 3, "beta": 0.7}
    oracle = federation(data, linear, cohort, everyone, clip=0.5, decay=0.02)
    method = LpProj(batch=None, clip=0.5, weight_decay=0.02, **settings)
    check(trained(linear, data, method, cohort, everyone), *oracle.lpproj(**settings))


@pytest.mark.few(1)
@PARTICIPATION
def test_lp_proj_to_accuracy_nu_or_the_cap(data: FederatedData, linear: Task, cohort: int, everyone: bool) -> None:
    settings: Solver = {"p": 2.0, "dim": 6, "lr": 0.5, "lam": 0.6, "eta": 0.2, "R": 2, "nu": 2e-3, "cap": 40}
    oracle = federation(data, linear, cohort, everyone)
    run = trained(linear, data, LpProj(batch=None, **settings), cohort, everyone)
    check(run, *oracle.lpproj(**settings))
    lower_levels = ROUNDS * settings["R"] * (len(data) if everyone else cohort)
    assert 0 < oracle.capped < lower_levels  # some met the rule, some the cap
    assert sum(row["capped"] for row in run.history.rounds) == oracle.capped


def test_a_model_with_a_hidden_layer(data: FederatedData, mlp: Task) -> None:
    settings: Solver = {"p": 1.5, "dim": 6, "lr": 0.1, "steps": 5, "lam": 0.6, "eta": 0.2}
    oracle = federation(data, mlp, 3, True, gradient=gradient_mlp)
    check(trained(mlp, data, LpProj(batch=None, **settings), 3, True), *oracle.lpproj(**settings))


def _guards(guards: Solver) -> Solver:
    return {"clip": guards["clip"], "decay": guards["weight_decay"]} if guards else {}
