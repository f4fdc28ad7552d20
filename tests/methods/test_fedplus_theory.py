"""What the paper of Fed+ proves, on strongly convex quadratics whose solutions are known.

f_k(w) = (w - m_k)' H_k (w - m_k) / 2 + c_k is a linear regression: 'squared_error' is the mean of (x'w - y)^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import nn

from descant import FederatedData, Task
from descant.aggregators import Mean
from descant.codecs import Native
from descant.coupling import Indicator, L1Norm, L2Norm, Squared, Zero
from descant.engine import Evaluation, Plan, RoundRecord, Simulation
from descant.execution import Vmap
from descant.methods import FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus

Array = NDArray[np.float64]
SIZES, D = (6, 3, 9, 4, 13, 5, 7), 3
N = len(SIZES)
VARIANTS = pytest.mark.parametrize("variant", [FedAvgPlus, FedGeoMedPlus, FedCoMedPlus], ids=lambda v: v.name)
COHORT = pytest.mark.parametrize("cohort", [N, 3])


@dataclass(frozen=True)
class Quadratics:
    """N parties with Hessians H [N, d, d] and minimisers m [N, d], and the data that they come from."""

    H: Array
    m: Array
    data: FederatedData

    def loss(self, W: Array) -> float:
        c = W - self.m
        return float(np.einsum("ki,kij,kj->", c, self.H, c) / 2 / N)

    def slope(self, W: Array) -> Array:
        """The gradient of every f_k, [N, d]."""
        return np.einsum("kij,kj->ki", self.H, W - self.m)

    def prox(self, z: Array, sigma: float) -> Array:
        """argmin_w f_k(w) + sigma/2 ||w - z_k||^2, [N, d]."""
        right = np.einsum("kij,kj->ki", self.H, self.m) + sigma * z
        return np.linalg.solve(self.H + sigma * np.eye(D), right[..., None])[..., 0]

    def envelope_slope(self, z: Array, sigma: float) -> Array:
        """The gradients of the Moreau envelopes of (18), [N, d]."""
        return sigma * (z - self.prox(z, sigma))


def quadratics(low: float, high: float) -> Quadratics:
    """Hessians with eigenvalues from `low` to `high`, both of which occur: L_f is `high`."""
    draw = np.random.default_rng(3)
    H, m, clients = [], [], []
    for n in SIZES:
        turn = stats.ortho_group.rvs(D, random_state=draw)
        values = np.array([low, draw.uniform(low, high), high])
        basis = np.linalg.qr(draw.normal(size=(n, D)))[0]
        X = np.sqrt(n / 2) * basis @ np.diag(np.sqrt(values)) @ turn
        own = draw.normal(size=D)
        noise = draw.normal(size=n)
        y = X @ own + noise - basis @ (basis.T @ noise)
        H.append(2 * X.T @ X / n)
        m.append(own)
        clients.append({"train": (torch.from_numpy(X), torch.from_numpy(y))})
    return Quadratics(np.stack(H), np.stack(m), FederatedData.from_arrays(clients))


def huber(r: Array, t: float) -> Array:
    return np.where(r <= t, r**2 / (2 * t), r - t / 2)


def envelope(psi: str, c: Array, t: float) -> float:
    """sum_k psi_t(c_k)."""
    if psi == "squared":
        return float((c**2).sum() / 2 / (1 + t))
    r = np.abs(c) if psi == "l1" else np.sqrt((c**2).sum(1))
    return float(huber(r, t).sum())


def envelope_gradient(psi: str, c: Array, t: float) -> Array:
    if psi == "squared":
        return c / (1 + t)
    r = np.abs(c) if psi == "l1" else np.sqrt((c**2).sum(1, keepdims=True))
    return c / np.maximum(r, t)


def theta(psi: str, c: Array, t: float) -> Array:
    """prox_{Psi/sigma}(c_k), eq. (9)."""
    extremes = {"zero": c, "indicator": 0 * c}
    return extremes[psi] if psi in extremes else c - t * envelope_gradient(psi, c, t)


def states(method: FedPlus, data: FederatedData, rounds: int, cohort: int = N) -> Iterator[tuple[Array, Array]]:
    """(W, w) before the first round and after every one."""
    module = nn.Linear(D, 1, bias=False).double()
    nn.init.constant_(module.weight, 2.0)
    plan = Plan(
        rounds=rounds,
        cohort=cohort,
        seed=4,
        sampling="uniform",
        trainers="cohort",
        own_start=False,
        stragglers=0.0,
        drop_last=False,
        keep_nonfinite=False,
        chunk=None,
        evaluation=Evaluation(every=rounds + 1, parts=("train",)),
        aggregator=Mean(),
        codec=Native(),
    )
    simulation = Simulation(Vmap(Task(module, loss="squared_error")), data, method, plan, cohort)

    def now() -> tuple[Array, Array]:
        return simulation.personal(simulation.everyone)[0].numpy().copy(), simulation.shared()[0].numpy().copy()

    yield now()
    for record in simulation.run():
        if isinstance(record, RoundRecord):
            yield now()


def last(method: FedPlus, problem: Quadratics, rounds: int, **settings: Any) -> tuple[Array, Array]:
    *_, end = states(method, problem.data, rounds, **settings)
    return end


def objective(problem: Quadratics, method: FedPlus, W: Array, w: Array) -> float:
    """H_sigma of (3), minimised over theta: mean f_k + sigma delta psi_delta(w_k - w)."""
    return problem.loss(W) + method.sigma * method.delta * envelope(method.penalty.name, W - w, method.delta) / N


ROUGH, EVEN = quadratics(0.5, 2.0), quadratics(0.97, 1.03)


@pytest.mark.few(1)
@VARIANTS
@COHORT
@pytest.mark.parametrize(("sigma", "delta", "steps"), [(1.0, 0.5, 1), (10.0, 0.1, 3)])
def test_theorem_1_the_objective_never_rises(
    variant: type[FedPlus], cohort: int, sigma: float, delta: float, steps: int
) -> None:
    """And by (31) it falls by at least sum_{k in S} ||grad F_k||^2 / (2 N (L_f + sigma)) a round."""
    method = variant(sigma=sigma, delta=delta, lr=1 / 2.0, steps=steps, batch=None, tol=1e-13)
    before, fallen = None, 0.0
    for W, w in states(method, ROUGH.data, 40, cohort):
        if before is not None:
            W0, w0 = before
            took_part = (W != W0).any(1)
            pull = method.sigma * (W0 - w0 - theta(method.penalty.name, W0 - w0, delta))
            slopes = (ROUGH.slope(W0) + pull)[took_part]
            promised = (slopes**2).sum() / (2 * N * (2.0 + sigma))
            fall = objective(ROUGH, method, W0, w0) - objective(ROUGH, method, W, w)
            assert took_part.sum() == cohort and promised >= 0
            assert fall >= promised - 1e-13
            fallen += fall
        before = W, w
    assert fallen > 0.5


@pytest.mark.few(1)
@pytest.mark.parametrize("broken", [{"lam": 1.0}, {"parties": "cohort"}, {"lr": 20.0}], ids=str)
def test_without_its_conditions_the_objective_does_rise(broken: dict[str, Any]) -> None:
    """A start at w, an aggregate of the cohort alone, or too large a rate."""
    settings: dict[str, Any] = {"sigma": 1.0, "delta": 0.5, "lr": 0.5, "steps": 1, "batch": None} | broken
    method = FedAvgPlus(**settings)
    values = [objective(ROUGH, method, W, w) for W, w in states(method, ROUGH.data, 40, 3)]
    assert max(b - a for a, b in pairwise(values)) > 1e-3


def solution(problem: Quadratics, method: FedPlus) -> tuple[Array, Array]:
    """The minimiser of the objective over (W, w), found jointly by SciPy."""
    psi, c, t = method.penalty.name, method.sigma * method.delta, method.delta

    def of(v: Array) -> tuple[float, Array]:
        W, w = v[:-D].reshape(N, D), v[-D:]
        pull = c * envelope_gradient(psi, W - w, t)
        down = np.concatenate([(problem.slope(W) + pull).ravel(), -pull.sum(0)])
        return N * objective(problem, method, W, w), down

    start = np.concatenate([problem.m.ravel(), problem.m.mean(0)])
    near = optimize.minimize(of, start, jac=True, method="BFGS")
    found = optimize.root(lambda v: of(v)[1], near.x, tol=1e-13)  # the last digits
    assert np.abs(found.fun).max() <= 1e-9
    return found.x[:-D].reshape(N, D), found.x[-D:]


@pytest.mark.slow
@VARIANTS
@pytest.mark.parametrize(
    ("problem", "rate", "steps", "rounds", "cohort"),
    [
        pytest.param(EVEN, 1.0, 1, 100, N, id="a step"),
        pytest.param(EVEN, 1.0, 1, 150, 4, id="a step of some"),
        pytest.param(EVEN, 1.0, 8, 60, N, id="exact"),
        pytest.param(ROUGH, 0.5, 1, 300, N, id="badly conditioned", marks=pytest.mark.slow),
        pytest.param(ROUGH, 0.5, 1, 600, 4, id="badly conditioned, of some", marks=pytest.mark.slow),
    ],
)
def test_it_converges_to_the_solution_of_its_objective(
    variant: type[FedPlus], problem: Quadratics, rate: float, steps: int, rounds: int, cohort: int
) -> None:
    """With one step a round or with exact inner solves, whoever takes part."""
    method = variant(sigma=2.0, delta=0.5, lr=rate, steps=steps, batch=None, tol=1e-13)
    W, w = last(method, problem, rounds, cohort=cohort)
    best, center = solution(problem, method)
    assert np.abs(W - best).max() <= 1e-6
    assert np.abs(w - center).max() <= 1e-6
    slopes = problem.slope(W) + method.sigma * method.delta * envelope_gradient(method.penalty.name, W - w, 0.5)
    assert np.abs(slopes).max() <= 1e-6, "every party is where its objective is flat"
    assert np.abs(best - problem.m).max() > 0.1 < np.abs(W - w).max(), "neither local nor one model for all"


def test_fedavg_plus_converges_to_the_closed_form() -> None:
    """w_k = (H_k + c)^-1 (H_k m_k + c w) with c = sigma delta / (1 + delta), and w their mean: linear equations."""
    sigma, delta = 2.0, 0.5
    c = sigma * delta / (1 + delta)
    pull = np.linalg.inv(EVEN.H + c * np.eye(D))  # [N, d, d]
    own = np.einsum("kij,kj->ki", pull, np.einsum("kij,kj->ki", EVEN.H, EVEN.m))
    w = np.linalg.solve(np.eye(D) - c * pull.mean(0), own.mean(0))
    W = own + c * pull @ w
    found = last(FedAvgPlus(sigma=sigma, delta=delta, lr=1.0, steps=1, batch=None), EVEN, 80)
    np.testing.assert_allclose(found[0], W, atol=1e-9)
    np.testing.assert_allclose(found[1], w, atol=1e-9)


# A step takes all but kappa |1 - h| <= 0.012 of the way to the minimum: eight of them are exact.
EXACT: dict[str, Any] = {"lr": 1.0, "steps": 8, "batch": None, "tol": 1e-13}


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [Squared(), L2Norm(), L1Norm(), Zero(), Indicator()], ids=lambda psi: psi.name)
def test_theorem_2_fixed_points(penalty: Any) -> None:
    sigma, delta = 1.5, 0.4
    method = FedPlus(penalty=penalty, sigma=sigma, delta=delta, **EXACT)
    *_, (W0, _), (W, w) = states(method, EVEN.data, 60)
    assert np.abs(W - W0).max() <= 1e-10, "a fixed point"
    z = w + theta(penalty.name, W - w, delta)
    slopes = EVEN.envelope_slope(z, sigma)
    np.testing.assert_allclose(slopes.mean(0), 0, atol=1e-8)  # (19)
    np.testing.assert_allclose(W, z - slopes / sigma, atol=1e-8)


@pytest.mark.slow
def test_corollary_1_a_without_a_penalty_every_party_ends_at_its_own_minimum() -> None:
    W, _ = last(FedPlus(penalty=Zero(), sigma=1.5, **EXACT), EVEN, 60)
    np.testing.assert_allclose(W, EVEN.m, atol=1e-9)  # (20)


@pytest.mark.slow
def test_corollary_1_b_with_the_indicator_it_is_the_fixed_point_of_fedprox() -> None:
    sigma = 1.5
    W, w = last(FedPlus(penalty=Indicator(), sigma=sigma, **EXACT), EVEN, 60)
    # The envelopes' gradients are G_k (w - m_k) with G_k = sigma (H_k + sigma)^-1 H_k.
    G = sigma * np.linalg.solve(EVEN.H + sigma * np.eye(D), EVEN.H)
    center = np.linalg.solve(G.sum(0), np.einsum("kij,kj->i", G, EVEN.m))
    np.testing.assert_allclose(w, center, atol=1e-9)  # (21)
    np.testing.assert_allclose(W, w - EVEN.envelope_slope(np.tile(w, (N, 1)), sigma) / sigma, atol=1e-9)


@pytest.mark.slow
def test_corollary_1_c_with_the_squared_norm() -> None:
    sigma, delta = 1.5, 0.4
    W, w = last(FedAvgPlus(sigma=sigma, delta=delta, **EXACT), EVEN, 60)
    slopes = EVEN.envelope_slope((W + delta * w) / (1 + delta), sigma)
    np.testing.assert_allclose(W, w - (1 + delta) / (sigma * delta) * slopes, atol=1e-8)  # (22)
    np.testing.assert_allclose(w, W.mean(0), atol=1e-12)
