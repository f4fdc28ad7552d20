"""MOCHA: linear models solved in the dual, and the relationship of the clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from scipy.optimize import brentq, minimize

from descant import FederatedData, Task
from descant.draws import uniform
from descant.methods import MOCHA
from descant.methods.mocha import related
from tests.methods.runs import ROUNDS, SEED, N, cohort_of, column, deployed, far, run

Vector = NDArray[np.float64]
LAM = 0.05
NEVER = 10**6  # rounds
LOSSES = ("hinge", "logistic", "squared")


def examples(data: FederatedData) -> tuple[list[Vector], list[Vector]]:
    """X with a column of ones, and y of -1 and 1, by client."""
    parts = [data.train.client(k) for k in range(len(data))]
    X = [np.concatenate([x.numpy(), np.ones((len(x), 1))], 1) for x, _ in parts]
    return X, [y.double().numpy() for _, y in parts]


def losses(loss: str, margins: Vector) -> Vector:
    """By the margin y s; (s - y)^2 = (1 - y s)^2 where y is -1 or 1."""
    of = {"hinge": np.maximum(0, 1 - margins), "squared": (1 - margins) ** 2}
    return of[loss] if loss in of else np.logaddexp(0, -margins)


def root(p: float, m: float, q: float) -> float:
    """Where log((1 - t) / t) = m + q (t - p)."""
    return float(brentq(lambda t: np.log(t / (1 - t)) + m + q * (t - p), 1e-300, 1 - 1e-16, xtol=1e-15, rtol=1e-15))


def ascended(loss: str, p: float, m: float, q: float) -> float:
    """The new dual y a, from the old one, the margin and the curvature."""
    if loss == "hinge":
        return min(1.0, max(0.0, p + (1 - m) / q))
    return p + (1 - m - p / 2) / (q + 0.5) if loss == "squared" else root(p, m, q)


def root_of_products(W: Vector, epsilon: float) -> Vector:
    """(W W' + epsilon I)^1/2; without epsilon W has no more rows than columns, for sqrtm wants an inverse."""
    return np.asarray(sqrtm(W @ W.T + epsilon * np.eye(len(W))).real)


@pytest.mark.few(2)
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_algorithm_1_client_by_client(
    two: FederatedData, score: Task, loss: Any, cohort: int, chunk: int | None
) -> None:
    """As in the authors' code, with the bound of each client; the relationship is learnt after rounds 2 and 4."""
    method = MOCHA(lam=LAM, loss=loss, epochs=2, every=2, epsilon=0.01)
    done = run(score, two, method, cohort=cohort, chunk=chunk)
    X, Y = examples(two)
    a, b, sigma = [np.zeros(len(y)) for y in Y], np.zeros((N, 5)), np.eye(N) / N
    heard: set[int] = set()
    for t in range(1, ROUNDS + 1):
        W, chosen, gap = sigma @ b / LAM, cohort_of(t, cohort), 0.0
        for k in chosen:
            x, y, n = X[k], Y[k], len(Y[k])
            p = y * a[k]
            entropy = np.array([sum(v * np.log(v) for v in (pi, 1 - pi) if v > 0) for pi in p])
            dual = {"hinge": -p, "logistic": entropy, "squared": p**2 / 4 - p}[loss]
            gap += float(np.mean(losses(loss, y * (x @ W[k])) + dual + p * y * (x @ W[k])))
            w, order = W[k].copy(), uniform(SEED, "each", t, "order", k, torch.arange(n)).argsort().tolist()
            bound = sum(abs(sigma[k, j]) for j in range(N))
            for i in order * 2:
                q = bound * (x[i] @ x[i]) / (LAM * n)
                new = y[i] * ascended(loss, y[i] * a[k][i], y[i] * (w @ x[i]), q)
                w += bound * (new - a[k][i]) * x[i] / (LAM * n)
                a[k][i] = new
            b[k] = sum(a[k][i] * x[i] for i in range(n)) / n
        heard |= set(chosen)
        if t % 2 == 0:
            here = sorted(heard)
            half, sigma = root_of_products((sigma @ b / LAM)[here], 0.01), np.eye(N) / N
            sigma[np.ix_(here, here)] = half / np.trace(half) * len(here) / N
        row = done.history.rounds[t - 1]
        assert row["duality_gap"] == pytest.approx(gap, abs=1e-10)
        assert row["gradients"] == row["examples"] == sum(2 * len(Y[k]) for k in chosen)
    assert far(deployed(done), sigma @ b / LAM) <= 1e-10
    assert set(column(done, "bytes_up")) == {cohort * 5 * 8}
    assert set(column(done, "bytes_down")) == {cohort * (5 + 1) * 8}


def solved(loss: str, sigma: Vector, X: list[Vector], Y: list[Vector]) -> Vector:
    """The W with the least primal objective, by a solver that knows no dual.

    Sigma may have no inverse, so that W = S Z with S S = Sigma, and lam/2 |Z|^2 is the penalty. The hinge is a
    quadratic program, with an excess for each example; the other losses are smooth.
    """
    values, vectors = np.linalg.eigh(sigma)
    S = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    if loss != "hinge":

        def smooth(flat: Vector) -> tuple[float, Vector]:
            Z = flat.reshape(N, 5)
            m = [y * (x @ w) for x, y, w in zip(X, Y, S @ Z, strict=True)]
            slope = [2 * (mk - 1) if loss == "squared" else -1 / (1 + np.exp(mk)) for mk in m]
            rows = np.stack([x.T @ (y * s) / len(y) for x, y, s in zip(X, Y, slope, strict=True)])
            fit = sum(np.mean(losses(loss, mk)) for mk in m)
            return float(fit + LAM / 2 * flat @ flat), (S @ rows + LAM * Z).ravel()

        options = {"maxiter": 20000, "maxfun": 40000, "ftol": 0.0, "gtol": 1e-12}
        return S @ minimize(smooth, np.zeros(5 * N), jac=True, method="L-BFGS-B", options=options).x.reshape(N, 5)
    share = np.concatenate([np.full(len(y), 1 / len(y)) for y in Y])
    rows = [np.kron(S[k], y * x) for k in range(N) for x, y in zip(X[k], Y[k], strict=True)]
    A = np.concatenate([np.stack(rows), np.eye(len(share))], 1)  # y w'x + excess >= 1

    def excess(z: Vector) -> tuple[float, Vector]:
        flat = z[: 5 * N]
        return float(share @ z[5 * N :] + LAM / 2 * flat @ flat), np.concatenate([LAM * flat, share])

    found = minimize(
        excess,
        np.concatenate([np.zeros(5 * N), np.ones(len(share))]),
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] * (5 * N) + [(0, None)] * len(share),
        constraints=[{"type": "ineq", "fun": lambda z: A @ z - 1, "jac": lambda z: A}],
        options={"maxiter": 2000, "ftol": 1e-15},
    )
    return S @ found.x[: 5 * N].reshape(N, 5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_falls_to_zero_and_models_to_the_primal_solution(
    two: FederatedData, score: Task, loss: Any
) -> None:
    """While clients are unrelated. The primal is strongly convex: N lam/2 |W - W*|^2 is at most the gap."""
    done = run(score, two, MOCHA(lam=LAM, loss=loss, epochs=4, every=NEVER), rounds=40)
    gaps = column(done, "duality_gap")
    assert gaps[0] > 0.1 and gaps[-1] <= 1e-9 and min(gaps) >= -1e-12
    assert far(deployed(done), solved(loss, np.eye(N) / N, *examples(two))) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_so_they_do_where_clients_are_related(two: FederatedData, score: Task, loss: Any) -> None:
    """After round 130 with the relationship that the models of unrelated clients give, found without a dual."""
    done = run(score, two, MOCHA(lam=LAM, loss=loss, epochs=2, every=130, epsilon=0.01), rounds=259)
    gaps = column(done, "duality_gap")
    assert gaps[130] > 1e-3 and gaps[258] <= 1e-5 and min(gaps) >= -1e-12
    alone = solved(loss, np.eye(N) / N, *examples(two))
    root = root_of_products(alone, 0.01)
    together = solved(loss, root / np.trace(root), *examples(two))
    assert far(together, alone) > 1e-2
    within = np.sqrt(2 * max(gaps[258], 1e-9) / LAM)  # since lam/2 |Z - Z*|^2 is at most the gap
    assert far(deployed(done), together) <= within


@pytest.mark.slow
def test_learning_both_in_turns_reaches_the_least_of_both(two: FederatedData, score: Task) -> None:
    """The least over Sigma of tr(W' Sigma^-1 W) + epsilon tr(Sigma^-1) is the square of tr (W W' + epsilon I)^1/2.

    That is convex and smooth in W, and close to the square of the sum of W's singular values.
    """
    X, Y = examples(two)
    epsilon = 0.05

    def whole(flat: Vector) -> tuple[float, Vector]:
        W = flat.reshape(N, 5)
        root = root_of_products(W, epsilon)
        size = np.trace(root)
        fit = sum(np.mean((x @ w - y) ** 2) for x, y, w in zip(X, Y, W, strict=True))
        rows = np.stack([2 * x.T @ (x @ w - y) / len(y) for x, y, w in zip(X, Y, W, strict=True)])
        return float(fit + LAM / 2 * size**2), (rows + LAM * size * np.linalg.solve(root, W)).ravel()

    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 0.0, "gtol": 1e-9}
    best = minimize(whole, np.ones(5 * N), jac=True, method="L-BFGS-B", options=options)
    method = MOCHA(lam=LAM, loss="squared", epochs=4, every=4, epsilon=epsilon)
    reached = whole(deployed(run(score, two, method, rounds=160)).numpy().ravel())[0]
    assert reached == pytest.approx(best.fun, rel=1e-5) and reached >= best.fun - 1e-9


@given(seed=st.integers(0, 10**6), clients=st.integers(1, 6), width=st.integers(1, 4), many=st.booleans())
def test_the_relationship_is_the_root_of_the_models_products(
    seed: int, clients: int, width: int, many: bool
) -> None:
    epsilon = 0.0 if clients <= width and many else 0.01
    W = torch.randn(clients, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sigma = related(W, torch.ones(clients, dtype=torch.bool), epsilon).numpy()
    assert np.trace(sigma) == pytest.approx(1) and far(sigma, sigma.T) <= 1e-12
    assert np.linalg.eigvalsh(sigma)[0] >= -1e-12
    root = root_of_products(W.numpy(), epsilon)
    assert far(root @ root, W.numpy() @ W.numpy().T + epsilon * np.eye(clients)) <= 1e-10
    assert far(sigma, root / np.trace(root)) <= 1e-10


def test_a_client_that_was_not_heard_stays_apart() -> None:
    W = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]], dtype=torch.float64)
    sigma = related(W, torch.tensor([True, False, True]), 0.0)
    expected = torch.tensor([[1.0, 0, 2], [0, 2.5, 0], [2, 0, 4]]).double() * 2 / 15  # of rank one, and 1/3
    assert far(sigma, expected) <= 1e-12
    lifted = related(W, torch.tensor([True, False, True]), 1.0)
    assert lifted.trace() == pytest.approx(1) and lifted[1].tolist() == pytest.approx([0, 1 / 3, 0])
    nobody = related(torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool), 0.0)
    assert far(nobody, torch.eye(3).double() / 3) <= 1e-12
