"""Fed+ equals a slow, plain NumPy loop over parties that was written from Algorithm 1.

The aggregate of eq. (7) is found twice as well: here by Weiszfeld's fixed point, run until it stands still, and by
bisection of a derivative, coordinate by coordinate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from descant import FederatedData, Task, simulate
from descant.coupling import Indicator, L1Norm, L2Norm, Layer, Penalty, Squared, Zero
from descant.engine.cohort import finished_share, sample
from descant.methods import FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus
from tests import held

Vector = NDArray[np.float64]
ROUNDS, SEED, TOLERANCE, CLASSES = 3, 3, 1e-10, 3
WORK: dict[str, Any] = {"lr": 0.3, "batch": None, "tol": 1e-13}


def gradient(theta: Vector, X: Vector, y: NDArray[np.int64]) -> Vector:
    """Mean cross entropy of softmax(X W' + b); theta is W [classes, features] row by row, then b."""
    split = CLASSES * X.shape[1]
    W, b = theta[:split].reshape(CLASSES, -1), theta[split:]
    scores = np.exp(X @ W.T + b)
    G = (scores / scores.sum(1, keepdims=True) - (y[:, None] == np.arange(CLASSES))) / len(y)
    return np.concatenate([(G.T @ X).ravel(), G.sum(0)])


def prox(psi: str, c: Vector, delta: float) -> Vector:
    """prox_{Psi/sigma} for Psi = sigma delta psi: section 4.4.1, with (12) for both signs."""
    match psi:
        case "squared":
            return c / (1 + delta)
        case "l2":
            length = np.sqrt(c @ c)
            return np.zeros_like(c) if length <= delta else (1 - delta / length) * c
        case "l1":
            return np.array([np.copysign(max(0.0, abs(ci) - delta), ci) for ci in c])
        case "zero":
            return c
        case _:
            return np.zeros_like(c)


def center(psi: str, W: Vector, delta: float) -> Vector:
    """Eq. (7)."""
    if psi == "l2":
        return weiszfeld(W, delta)
    if psi == "l1":
        return np.array([bisect(column, delta) for column in W.T])
    mean: Vector = W.mean(0)
    return mean


def weiszfeld(W: Vector, delta: float) -> Vector:
    w = np.median(W, axis=0) + 1e-3
    for _ in range(200_000):
        near = np.maximum(np.sqrt(((W - w) ** 2).sum(1)), max(delta, 1e-300))
        new = (W / near[:, None]).sum(0) / (1 / near).sum()
        if np.abs(new - w).max() <= 1e-16:
            break
        w = new
    return w


def bisect(column: Vector, delta: float) -> float:
    if delta == 0:
        return float(np.median(column))

    def slope(w: float) -> float:
        return float(np.clip(w - column, -delta, delta).sum())

    def edge(rises: Callable[[float], bool]) -> float:
        low, high = column.min() - 1, column.max() + 1
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if rises(middle) else (middle, high)
        return low

    zero = 1e-14  # the slope of half the parties against the other half, rounded
    return (edge(lambda w: slope(w) > zero) + edge(lambda w: slope(w) >= -zero)) / 2


@dataclass
class Federation:
    """The parties' data, who takes part in each round, and what every layer's penalty is."""

    parties: list[tuple[Vector, NDArray[np.int64]]]
    start: Vector
    cohorts: list[list[int]]
    steps: Callable[[int, int], int]  # (round, party) -> E_k

    def run(
        self,
        layers: list[tuple[slice, str, float]],
        *,
        lr: float,
        sigma: float,
        lam: float = 0.0,
        everyone: bool = True,
        clip: float = np.inf,
        decay: float = 0.0,
    ) -> tuple[Vector, Vector]:
        kappa = 1 / (1 + lr * sigma)
        w, W = self.start, np.stack([self.start] * len(self.parties))
        for t, cohort in enumerate(self.cohorts, 1):
            for k in cohort:
                theta = np.concatenate([prox(psi, (W[k] - w)[at], delta) for at, psi, delta in layers])
                x = (1 - lam) * W[k] + lam * w
                for _ in range(self.steps(t, k)):
                    g = gradient(x, *self.parties[k])
                    g = g * min(1, clip / np.sqrt(g @ g)) + decay * x
                    x = kappa * (x - lr * g) + (1 - kappa) * (w + theta)
                W[k] = x
            heard = W if everyone else W[cohort]
            w = np.concatenate([center(psi, heard[:, at], delta) for at, psi, delta in layers])
        return w, W


def federation(data: FederatedData, task: Task, cohort: int, steps: Callable[[int, int], int]) -> Federation:
    return Federation(
        parties=[(X.numpy(), y.numpy()) for X, y in map(data.train.client, range(len(data)))],
        start=task.start().numpy(),
        cohorts=[sample(SEED, t, cohort, torch.ones(len(data))).tolist() for t in range(1, ROUNDS + 1)],
        steps=steps,
    )


def check(
    task: Task, data: FederatedData, method: FedPlus, cohort: int, expected: tuple[Vector, Vector], **settings: Any
) -> None:
    how: dict[str, Any] = {"rounds": ROUNDS, "seed": SEED, "evaluate": ROUNDS, "mode": "vmap"} | settings
    run = simulate(task, data, method, cohort=cohort, **how)
    assert run.collapse is None
    w, W = expected
    assert np.abs(held.shared(run).numpy() - w).max() <= TOLERANCE
    assert np.abs(held.personal(run).numpy() - W).max() <= TOLERANCE
    if method.parties == "all":
        assert np.abs(held.by_server(run)["W"].numpy() - W).max() <= TOLERANCE
    assert np.abs(W - task.start().numpy()).max() > 0.1, "training went somewhere"


COHORT = pytest.mark.parametrize("cohort", [7, 3])
# Who takes part, and whose models are combined: with everyone there, the two are the same.
PARTIES = pytest.mark.parametrize(("cohort", "parties"), [(7, "all"), (3, "all"), (3, "cohort")])
ALL = slice(None)


@pytest.mark.few(3)
@PARTIES
@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("variant", [FedAvgPlus, FedGeoMedPlus, FedCoMedPlus], ids=lambda variant: variant.name)
def test_the_three_variants(
    data: FederatedData, linear: Task, cohort: int, parties: Any, lam: float, variant: type[FedPlus]
) -> None:
    oracle = federation(data, linear, cohort, lambda t, k: 4)
    method = variant(steps=4, sigma=0.8, delta=0.2, lam=lam, parties=parties, **WORK)
    expected = oracle.run([(ALL, method.penalty.name, 0.2)], lr=0.3, sigma=0.8, lam=lam, everyone=parties == "all")
    check(linear, data, method, cohort, expected)


@pytest.mark.few(3)
@PARTIES
@pytest.mark.parametrize(
    ("penalty", "delta"),
    [(Zero(), 0.1), (Indicator(), 0.1), (L1Norm(), 0.0), (L2Norm(), 0.0), (Squared(), 0.0), (L2Norm(), 3.0)],
    ids=str,
)
def test_any_penalty(
    data: FederatedData, linear: Task, cohort: int, parties: Any, penalty: Penalty, delta: float
) -> None:
    oracle = federation(data, linear, cohort, lambda t, k: 3)
    method = FedPlus(penalty=penalty, delta=delta, sigma=0.5, steps=3, parties=parties, **WORK)
    expected = oracle.run([(ALL, penalty.name, delta)], lr=0.3, sigma=0.5, everyone=parties == "all")
    check(linear, data, method, cohort, expected)


@COHORT
def test_kappa_in_the_place_of_sigma_and_the_guards_of_descent(
    data: FederatedData, linear: Task, cohort: int
) -> None:
    oracle = federation(data, linear, cohort, lambda t, k: 4)
    method = FedGeoMedPlus(steps=4, kappa=0.8, delta=0.2, clip=0.4, weight_decay=0.02, **WORK)
    expected = oracle.run([(ALL, "l2", 0.2)], lr=0.3, sigma=0.25 / 0.3, clip=0.4, decay=0.02)
    check(linear, data, method, cohort, expected)


@PARTIES
def test_layers_with_a_penalty_and_a_delta_of_their_own(
    data: FederatedData, linear: Task, cohort: int, parties: Any
) -> None:
    oracle = federation(data, linear, cohort, lambda t, k: 4)
    layers = (Layer("bias", L1Norm(), 0.05),)
    method = FedGeoMedPlus(steps=4, sigma=0.8, delta=0.2, layers=layers, parties=parties, **WORK)
    expected = oracle.run(
        [(slice(0, 12), "l2", 0.2), (slice(12, 15), "l1", 0.05)], lr=0.3, sigma=0.8, everyone=parties == "all"
    )
    check(linear, data, method, cohort, expected)


@COHORT
def test_parties_that_take_different_numbers_of_steps(data: FederatedData, linear: Task, cohort: int) -> None:
    """Three epochs for most; a straggler keeps the part that it has done."""
    every = torch.arange(len(data))
    shares = {t: finished_share(SEED, t, every, 0.6) for t in range(1, ROUNDS + 1)}

    def steps(t: int, k: int) -> int:
        return int(np.ceil(3 * float(shares[t][k])))

    oracle = federation(data, linear, cohort, steps)
    assert len({steps(t, k) for t, cohort in enumerate(oracle.cohorts, 1) for k in cohort}) > 1
    method = FedCoMedPlus(epochs=3, sigma=0.8, delta=0.2, **WORK)
    check(linear, data, method, cohort, oracle.run([(ALL, "l1", 0.2)], lr=0.3, sigma=0.8), stragglers=0.6)
