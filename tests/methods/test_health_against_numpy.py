"""Federation health: jumps, distances and losses on the way to the aggregate, against loops written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from descant import FederatedData, Health, Run, Task
from descant.methods import L2SGD, METHODS, Ditto, FedAvg, Method
from tests.methods.runs import cohort_of, run

Vector = NDArray[np.float64]
Loss = Callable[[int, Vector], float]
ROUNDS, POINTS = 4, (0.0, 0.3, 1.0)
FIGURES = ("jump", "distance", "loss_began", "loss_at_0", "loss_at_0.3", "loss_at_1")


@pytest.fixture(scope="module")
def loss(regression: FederatedData) -> Loss:
    """f_k(x) = |A x - b|^2 / n, in NumPy."""
    clients = [(A.numpy(), b.numpy()) for A, b in map(regression.train.client, range(len(regression)))]

    def of(k: int, x: Vector) -> float:
        A, b = clients[k]
        return float(((A @ x - b) ** 2).mean())

    return of


class Seen:
    """What a loop saw of one client in one round."""

    def __init__(self, loss: Loss, k: int, began: Vector, local: Vector) -> None:
        self.loss, self.k, self.began, self.local = loss, k, began, local

    def row(self, after: Vector, aggregate: Vector) -> list[float]:
        way = [(1 - theta) * self.local + theta * aggregate for theta in POINTS]
        norms = [float(np.linalg.norm(end - self.local)) for end in (after, aggregate)]
        return [*norms, self.loss(self.k, self.began), *(self.loss(self.k, x) for x in way)]


def first(task: Task) -> Vector:
    return task.start().numpy().astype(float)


def rows_of(done: Run, round: int) -> Vector:
    return done.health.filter(pl.col("round") == round).select(FIGURES).to_numpy()


def looked(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    health = Health(rounds=1, points=POINTS)
    return run(task, data, method, rounds=ROUNDS, health=health, **settings)


def check(done: Run, expected: dict[int, list[list[float]]]) -> None:
    assert done.health["round"].unique(maintain_order=True).to_list() == list(expected)
    for round, rows in expected.items():
        np.testing.assert_allclose(rows_of(done, round), rows, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 2])
def test_fedavg_begins_at_w_and_jumps_from_w_k_to_the_new_w(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss, chunk: int | None
) -> None:
    (H, g, n), w, expected = quadratics, first(plane), {}
    for t in range(1, ROUNDS + 1):
        cohort = cohort_of(t, 3, clients=5)
        seen = []
        for k in cohort:
            x = w
            for _ in range(2):
                x = x - 0.05 * (H[k] @ x - g[k])
            seen.append(Seen(loss, k, w, x))
        w = sum(n[s.k] * s.local for s in seen) / sum(n[k] for k in cohort)
        expected[t] = [s.row(w, w) for s in seen]
    method = FedAvg(lr=0.05, steps=2, batch=None)
    done = looked(plane, regression, method, cohort=3, chunk=chunk)
    check(done, expected)
    assert done.health.filter(pl.col("round") == 2)["client"].to_list() == cohort_of(2, 3, clients=5)


@pytest.mark.parametrize("lam", [0.0, 0.25])
def test_fedplus_goes_on_between_its_own_model_and_w(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss, lam: float
) -> None:
    """With lam = 0, as in the paper's Figure 1, nobody jumps; the aggregate is as far away as it is."""
    (H, g, _), w, expected, sigma, delta = quadratics, first(plane), {}, 0.3, 0.5
    own = [w] * 5
    kappa = 1 / (1 + 0.05 * sigma)
    for t in range(1, ROUNDS + 1):
        seen = []
        for k in range(5):
            anchor = w + (own[k] - w) / (1 + delta)  # theta_k of FedAvg+
            start = x = (1 - lam) * own[k] + lam * w
            for _ in range(3):
                x = kappa * (x - 0.05 * (H[k] @ x - g[k])) + (1 - kappa) * anchor
            seen.append(Seen(loss, k, start, x))
        own = [s.local for s in seen]
        w = np.mean(own, axis=0)
        expected[t] = [s.row((1 - lam) * s.local + lam * w, w) for s in seen]
    method = METHODS["fedavg+"](lr=0.05, steps=3, batch=None, sigma=sigma, delta=delta, lam=lam)  # type: ignore
    done = looked(plane, regression, method)
    check(done, expected)
    assert (done.health["jump"].max() == 0) == (lam == 0) and done.health["distance"].min() > 1e-3


def test_dittos_personal_model_stays_while_the_shared_one_is_elsewhere(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss
) -> None:
    (H, g, n), w, expected = quadratics, first(plane), {}
    v = [w] * 5
    for t in range(1, ROUNDS + 1):
        seen, copies = [], []
        for k in range(5):
            x = w - 0.05 * (H[k] @ w - g[k])
            copies.append(x)
            y = v[k]
            for _ in range(2):
                y = y - 0.04 * (H[k] @ y - g[k] + 0.7 * (y - w))
            seen.append(Seen(loss, k, v[k], y))
        v, w = [s.local for s in seen], sum(n[k] * copies[k] for k in range(5)) / n.sum()
        expected[t] = [s.row(s.local, w) for s in seen]
    method = Ditto(lam=0.7, lr=0.04, steps=2, batch=None, solver=FedAvg(lr=0.05, steps=1, batch=None))
    check(looked(plane, regression, method), expected)


def test_a_round_of_l2sgd_that_talks_moves_everyone_towards_the_mean(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss
) -> None:
    (H, g, _), expected, talked = quadratics, {}, 0
    x, method = [first(plane)] * 5, L2SGD(p=0.5, lam=0.8, lr=0.05, batch=None)
    done = looked(plane, regression, method)
    for t in range(1, ROUNDS + 1):
        began = x
        if done.rounds["bytes_up"][t - 1]:  # heads
            mean, talked = np.mean(x, axis=0), talked + 1
            local, x = x, [one - 0.05 * 0.8 / 0.5 * (one - mean) for one in x]
        else:
            local = x = [x[k] - 0.05 / 0.5 * (H[k] @ x[k] - g[k]) for k in range(5)]
        expected[t] = [Seen(loss, k, began[k], local[k]).row(x[k], x[k]) for k in range(5)]
    assert 0 < talked < ROUNDS
    check(done, expected)
