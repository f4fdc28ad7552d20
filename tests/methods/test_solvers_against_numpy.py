"""The global solvers and the fair methods equal slow, plain NumPy loops that were written from the papers.

As in test_against_numpy.py: full batches, ragged clients, everyone or a few of them, and Ditto over each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from descant import FederatedData, Run, Task, simulate
from descant.engine.cohort import sample
from descant.methods import (
    AFL,
    QFFL,
    TERM,
    Ditto,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedMGDA,
    FedYogi,
    Method,
    Scaffold,
)
from tests import held

Vector = NDArray[np.float64]
Slope = Callable[[int, Vector], Vector]
ROUNDS, SEED, LR, STEPS = 3, 3, 0.3, 3
FEATURES, CLASSES = 4, 3
TOLERANCE = 1e-10
WORK: dict[str, Any] = {"lr": LR, "steps": STEPS, "batch": None}


def on_simplex(y: Vector) -> Vector:
    """max(0, y - theta) with the theta, found by bisection, for which it sums to 1."""
    low, high = y.min() - 1.0, y.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(0, y - middle).sum() > 1 else (low, middle)
    return np.maximum(0, y - high)


def shortest(G: Vector, low: Vector, high: Vector) -> Vector:
    """argmin l'Gl, sum l = 1, low <= l <= high: of all choices of who is low, high or free, the best allowed."""
    best, least = None, np.inf
    for where in product((0, 1, 2), repeat=len(G)):
        free = np.array(where) == 2
        weights = np.where(np.array(where) == 1, high, low)
        if free.any():
            m = int(free.sum())
            system = np.block([[G[np.ix_(free, free)], np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
            right = np.append(-G[np.ix_(free, ~free)] @ weights[~free], 1 - weights[~free].sum())
            weights[free] = np.linalg.solve(system, right)[:m]
        inside = (weights >= low - 1e-11).all() and (weights <= high + 1e-11).all()
        if inside and abs(weights.sum() - 1) < 1e-11 and weights @ G @ weights < least:
            best, least = weights, weights @ G @ weights
    assert best is not None
    return best


@dataclass
class Federation:
    """The clients' data and the cohort of each round. Every method gives w^0, w^1, ..., w^T."""

    clients: list[tuple[Vector, NDArray[np.int64]]]
    theta: Vector
    cohorts: list[list[int]]
    slope: Slope

    def loss(self, k: int, theta: Vector) -> float:
        X, y = self.clients[k]
        W, b = theta[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), theta[CLASSES * FEATURES :]
        scores = X @ W.T + b
        picked = scores[np.arange(len(y)), y]
        return float((np.log(np.exp(scores).sum(1)) - picked).mean())

    def trained(self, k: int, w: Vector, correction: Vector | float = 0.0) -> Vector:
        x = w
        for _ in range(STEPS):
            x = x - LR * (self.slope(k, x) + correction)
        return x

    def share(self, cohort: list[int], weighted: bool) -> dict[int, float]:
        n = {k: len(self.clients[k][1]) if weighted else 1 for k in cohort}
        return {k: n[k] / sum(n.values()) for k in cohort}

    def mean_update(self, w: Vector, cohort: list[int], weighted: bool) -> Vector:
        p = self.share(cohort, weighted)
        return np.sum([p[k] * (self.trained(k, w) - w) for k in cohort], axis=0)

    def scaffold(self, *, option: str = "II", server_lr: float = 1.0) -> list[Vector]:
        """Algorithm 1 of SCAFFOLD; the control variates are left in `self.controls`."""
        w, c, c_k = [self.theta], np.zeros_like(self.theta), np.zeros((len(self.clients), len(self.theta)))
        for cohort in self.cohorts:
            moves, changes = [], []
            for k in cohort:
                y = self.trained(k, w[-1], c - c_k[k])
                new = self.slope(k, w[-1]) if option == "I" else c_k[k] - c + (w[-1] - y) / (STEPS * LR)
                moves.append(y - w[-1])
                changes.append(new - c_k[k])
            for k, change in zip(cohort, changes, strict=True):
                c_k[k] += change
            w.append(w[-1] + server_lr * np.mean(moves, axis=0))
            c = c + len(cohort) / len(self.clients) * np.mean(changes, axis=0)
        self.controls = (c, c_k)
        return w

    def fedavgm(self, *, beta: float, server_lr: float, weighted: bool = True) -> list[Vector]:
        w, v = [self.theta], np.zeros_like(self.theta)
        for cohort in self.cohorts:
            v = beta * v + self.mean_update(w[-1], cohort, weighted)
            w.append(w[-1] + server_lr * v)
        return w

    def fedopt(
        self, kind: str, *, server_lr: float, beta1: float, beta2: float = 0.0, tau: float, weighted: bool = True
    ) -> list[Vector]:
        """Algorithm 2 of Adaptive Federated Optimization."""
        w, m, v = [self.theta], np.zeros_like(self.theta), np.full_like(self.theta, tau**2)
        for cohort in self.cohorts:
            delta = self.mean_update(w[-1], cohort, weighted)
            m = beta1 * m + (1 - beta1) * delta
            if kind == "adagrad":
                v = v + delta**2
            elif kind == "yogi":
                v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
            else:
                v = beta2 * v + (1 - beta2) * delta**2
            w.append(w[-1] + server_lr * m / (np.sqrt(v) + tau))
        return w

    def qffl(self, *, q: float, L: float = 1 / LR) -> list[Vector]:
        """Algorithm 2 of q-FFL (q-FedAvg)."""
        w = [self.theta]
        for cohort in self.cohorts:
            top, bottom = np.zeros_like(self.theta), 0.0
            for k in cohort:
                F, u = self.loss(k, w[-1]), L * (w[-1] - self.trained(k, w[-1]))
                top = top + F**q * u
                bottom += q * F ** (q - 1) * float(u @ u) + L * F**q
            w.append(w[-1] - top / bottom)
        return w

    def afl(self, *, gamma: float) -> list[Vector]:
        """Stochastic-AFL with cohorts drawn uniformly; the mixture is left in `self.mixture`."""
        N = len(self.clients)
        w, mixture = [self.theta], np.full(N, 1 / N)
        for cohort in self.cohorts:
            move, ascent = np.zeros_like(self.theta), np.zeros(N)
            for k in cohort:
                move = move + N / len(cohort) * mixture[k] * (self.trained(k, w[-1]) - w[-1])
                ascent[k] = N / len(cohort) * self.loss(k, w[-1])
            w.append(w[-1] + move)
            mixture = on_simplex(mixture + gamma * ascent)
        self.mixture = mixture
        return w

    def term(self, *, t: float, weighted: bool = True) -> list[Vector]:
        w = [self.theta]
        for cohort in self.cohorts:
            p = self.share(cohort, weighted)
            tilt = {k: p[k] * np.exp(t * self.loss(k, w[-1])) for k in cohort}
            moves = [tilt[k] / sum(tilt.values()) * (self.trained(k, w[-1]) - w[-1]) for k in cohort]
            w.append(w[-1] + np.sum(moves, axis=0))
        return w

    def fedmgda(self, *, epsilon: float, server_lr: float, weighted: bool = True) -> list[Vector]:
        """Algorithm 1 of FedMGDA+."""
        w = [self.theta]
        for cohort in self.cohorts:
            updates = [self.trained(k, w[-1]) - w[-1] for k in cohort]
            units = np.stack([u / np.sqrt(u @ u) for u in updates])
            p = np.array([*self.share(cohort, weighted).values()])
            low, high = np.maximum(0, p - epsilon), np.minimum(1, p + epsilon)
            w.append(w[-1] + server_lr * shortest(units @ units.T, low, high) @ units)
        return w

    def ditto(self, w: list[Vector], *, lr: float, steps: int, lam: float) -> list[Vector]:
        v = [self.theta for _ in self.clients]
        for t, cohort in enumerate(self.cohorts):
            for k in cohort:
                for _ in range(steps):
                    v[k] = v[k] - lr * (self.slope(k, v[k]) + lam * (v[k] - w[t]))
        return v


ADAPTIVE: dict[str, Any] = {"server_lr": 0.2, "beta1": 0.6, "tau": 0.05}
CASES: dict[str, tuple[Method, Callable[[Federation], list[Vector]]]] = {
    "scaffold I": (Scaffold(**WORK, option="I"), lambda f: f.scaffold(option="I")),
    "scaffold II": (Scaffold(**WORK, server_lr=0.7), lambda f: f.scaffold(server_lr=0.7)),
    "fedavgm": (FedAvgM(**WORK, beta=0.8, server_lr=0.5), lambda f: f.fedavgm(beta=0.8, server_lr=0.5)),
    "fedadagrad": (FedAdagrad(**WORK, **ADAPTIVE), lambda f: f.fedopt("adagrad", **ADAPTIVE)),
    "fedyogi": (FedYogi(**WORK, **ADAPTIVE, beta2=0.9), lambda f: f.fedopt("yogi", **ADAPTIVE, beta2=0.9)),
    "fedadam": (
        FedAdam(**WORK, **ADAPTIVE, beta2=0.9, weighted=False),
        lambda f: f.fedopt("adam", **ADAPTIVE, beta2=0.9, weighted=False),
    ),
    "q-ffl 1": (QFFL(**WORK), lambda f: f.qffl(q=1.0)),
    "q-ffl 0.3": (QFFL(**WORK, q=0.3, L=2.0), lambda f: f.qffl(q=0.3, L=2.0)),
    "q-ffl 5": (QFFL(**WORK, q=5.0), lambda f: f.qffl(q=5.0)),
    "afl": (AFL(**WORK, gamma=0.2), lambda f: f.afl(gamma=0.2)),
    "term 1": (TERM(**WORK), lambda f: f.term(t=1.0)),
    "term 5": (TERM(**WORK, t=5.0, weighted=False), lambda f: f.term(t=5.0, weighted=False)),
    "term -2": (TERM(**WORK, t=-2.0), lambda f: f.term(t=-2.0)),
    "fedmgda+": (FedMGDA(**WORK, server_lr=0.5), lambda f: f.fedmgda(epsilon=0.1, server_lr=0.5)),
    "fedmgda+ 1": (
        FedMGDA(**WORK, epsilon=1.0, weighted=False),
        lambda f: f.fedmgda(epsilon=1.0, server_lr=1.0, weighted=False),
    ),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES)


@pytest.fixture(params=[7, 3])
def oracle(request: pytest.FixtureRequest, data: FederatedData, linear: Task, slope: Slope) -> Federation:
    cohorts = [sample(SEED, t, request.param, torch.ones(len(data))).tolist() for t in range(1, ROUNDS + 1)]
    parts = [(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(len(data)))]
    return Federation(parts, linear.start().numpy(), cohorts, slope)


def flat(module: torch.nn.Module) -> Vector:
    parameters: Vector = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    return parameters


def run(task: Task, data: FederatedData, method: Method, oracle: Federation) -> Run:
    cohort = len(oracle.cohorts[0])
    done = simulate(task, data, method, rounds=ROUNDS, seed=SEED, cohort=cohort, evaluate=ROUNDS, mode="vmap")
    assert done.collapse is None
    return done


def close(found: Any, expected: Vector) -> None:
    assert np.abs(np.asarray(found) - expected).max() <= TOLERANCE


@pytest.mark.few(4)
@EVERY_CASE
def test_the_shared_model(data: FederatedData, linear: Task, oracle: Federation, case: str) -> None:
    method, expected = CASES[case]
    w = expected(oracle)
    close(flat(run(linear, data, method, oracle).shared()), w[-1])
    assert np.abs(w[-1] - w[0]).max() > 1e-2, "it went somewhere"


@pytest.mark.few(1)
@EVERY_CASE
def test_ditto_over_it(data: FederatedData, linear: Task, oracle: Federation, case: str) -> None:
    solver, expected = CASES[case]
    done = run(linear, data, Ditto(lr=0.1, steps=3, batch=None, lam=0.8, solver=solver), oracle)
    w = expected(oracle)
    close(flat(done.shared()), w[-1])
    for k, v in enumerate(oracle.ditto(w, lr=0.1, steps=3, lam=0.8)):
        close(flat(done.personal(k)), v)


@pytest.mark.few(1)
@pytest.mark.parametrize("option", ["I", "II"])
def test_the_control_variates(data: FederatedData, linear: Task, oracle: Federation, option: Any) -> None:
    done = run(linear, data, Scaffold(**WORK, option=option), oracle)
    oracle.scaffold(option=option)
    c, c_k = oracle.controls
    close(held.by_server(done)["c"], c)
    close(held.by_clients(done)["c_k"], c_k)
    close(c_k.mean(0), c)  # c is their mean: the corrections c - c_k of all clients sum to zero
    assert np.abs(c).max() > 1e-3


def test_the_mixture_of_afl(data: FederatedData, linear: Task, oracle: Federation) -> None:
    done = run(linear, data, AFL(**WORK, gamma=0.2), oracle)
    oracle.afl(gamma=0.2)
    close(held.by_server(done)["mixture"], oracle.mixture)
