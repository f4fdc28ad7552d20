"""Centres of points under a penalty (Fed+, eq. 7), against SciPy, the printed iteration and their optimality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from torch import Tensor

from descant.coupling import Center, Indicator, L1Norm, L2Norm, Penalty, Squared, Stop, Zero
from descant.coupling.centers import accelerated
from descant.errors import SettingError
from tests.coupling.centering import STOP, Array, points, slope, value

FEW = 30  # iterations that are enough, however far an outlier lies

seeds = st.integers(0, 10_000)
parties = st.integers(1, 9)
dims = st.integers(1, 5)
deltas = st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0])
NORMS = pytest.mark.parametrize("psi", [L2Norm(), L1Norm()], ids=lambda psi: psi.name)
OUTLIERS = pytest.mark.parametrize("size", [1e4, 1e30])


def check(psi: Penalty, found: Center, x: Tensor, p: Tensor, t: float) -> None:
    """It is optimal, and its residual says how much so."""
    w, X, weights = found.w.numpy(), x.numpy(), p.double().numpy()
    least = np.linalg.norm(slope(psi, w, X, weights, t))
    assert least <= 1e-9
    assert found.residual == pytest.approx(least, abs=1e-9)
    assert found.iterations <= FEW


@NORMS
@given(seeds, parties, dims, deltas)
def test_the_medians_are_optimal(psi: Penalty, seed: int, K: int, d: int, t: float) -> None:
    x, p = points(seed, K, d)
    check(psi, psi.center(x, p, t, STOP), x, p, t)


@pytest.mark.few(16)
@NORMS
@pytest.mark.parametrize("t", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(1, 9))
def test_the_medians_are_what_scipy_finds(psi: Penalty, t: float, seed: int) -> None:
    x, p = points(seed, K=3 + seed, d=1 + seed % 4)
    found = psi.center(x, p, t, STOP)
    X, weights = x.numpy(), p.double().numpy()

    def of(w: Array) -> tuple[float, Array]:
        return value(psi, w, X, weights, t), slope(psi, w, X, weights, t)

    if t > 0:
        best = optimize.minimize(of, X.mean(0), jac=True, method="BFGS", options={"gtol": 1e-10})
        fun, w = best.fun, best.x
    else:
        fun, w = scipy_median(psi, X, weights)
    assert value(psi, found.w.numpy(), X, weights, t) == pytest.approx(fun, abs=1e-6)
    if unique(psi, found.w.numpy(), X, weights, t):
        np.testing.assert_allclose(found.w, w, atol=1e-4 if t == 0 else 1e-6)


def scipy_median(psi: Penalty, X: Array, p: Array) -> tuple[float, Array]:
    """The exact median: by a linear programme for l1, and by a search for l2."""
    (K, d), share = X.shape, p / p.sum()
    if psi.name == "l1":
        cost = np.concatenate([np.zeros(d), np.repeat(share, d)])
        A, one = np.tile(np.eye(d), (K, 1)), np.eye(K * d)
        bounds = [(None, None)] * d + [(0, None)] * (K * d)
        A_ub, b_ub = np.block([[A, -one], [-A, -one]]), np.concatenate([X.ravel(), -X.ravel()])
        best = optimize.linprog(cost, A_ub=A_ub, b_ub=b_ub, bounds=bounds)
        return best.fun, best.x[:d]
    starts = [X.mean(0), *X]  # from the kinks too, which are what can trap a search without gradients
    precise = {"xatol": 1e-11, "fatol": 1e-15, "maxiter": 20000, "maxfev": 20000}
    found = [
        optimize.minimize(lambda w: value(psi, w, X, p, 0.0), at, method="Nelder-Mead", options=precise)
        for at in starts
    ]
    best = min(found, key=lambda result: float(result.fun))
    return float(best.fun), best.x


def unique(psi: Penalty, w: Array, X: Array, p: Array, t: float) -> bool:
    """Whether the objective rises in every direction from w (looked at in many)."""
    ways = np.random.default_rng(0).normal(size=(200, X.shape[1]))
    ways = np.concatenate([np.eye(X.shape[1]), -np.eye(X.shape[1]), ways])
    here = value(psi, w, X, p, t)
    return all(value(psi, w + 1e-3 * v / np.linalg.norm(v), X, p, t) > here + 1e-9 for v in ways)


def printed(psi: Penalty, x: Tensor, t: float, iterations: int) -> Tensor:
    """Iteration (13), from the mean."""
    w = mean = x.mean(0)
    for _ in range(iterations):
        w = mean - psi.prox(x - w, t).mean(0)
    return w


@NORMS
@pytest.mark.parametrize("t", [0.3, 1.0])
def test_on_benign_points_the_printed_iteration_ends_there(psi: Penalty, t: float) -> None:
    x, _ = points(5, 9, 3)  # an odd number, so that there is one minimiser
    found = psi.center(x, torch.ones(9), t, STOP)
    torch.testing.assert_close(printed(psi, x, t, 2000), found.w, rtol=0, atol=1e-9)


@NORMS
@OUTLIERS
@pytest.mark.parametrize("t", [0.0, 0.1])
@pytest.mark.parametrize("bad", [1, 4])
def test_the_cost_does_not_grow_with_an_outlier(psi: Penalty, size: float, t: float, bad: int) -> None:
    x, p = points(7, 10, 4)
    p = torch.ones(10)
    x[:bad] = size * torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    found = psi.center(x, p, t, STOP)
    check(psi, found, x, p, t)
    assert float((found.w - x[bad:].mean(0)).abs().max()) < 5, "a minority does not take it away"
    # Beyond a million it does not matter how far an outlier is, only in which direction it lies.
    nearer = x.clone()
    nearer[:bad] *= 1e6 / size
    torch.testing.assert_close(psi.center(nearer, p, t, STOP).w, found.w, rtol=0, atol=1e-2 if size < 1e6 else 1e-5)


@pytest.mark.few(2)
@NORMS
@pytest.mark.parametrize("t", [0.0, 0.1])
@pytest.mark.parametrize("bad", [5, 6, 9])
@pytest.mark.parametrize("together", [True, False])
def test_a_majority_of_outliers_ends_in_bounded_time_too(psi: Penalty, t: float, bad: int, together: bool) -> None:
    x, _ = points(1, 10, 4)
    x[:bad] = 1e30 * (1.0 if together else points(2, bad, 4)[0])
    found = psi.center(x, torch.ones(10), t, STOP)
    assert found.residual <= 1e-9 and found.iterations <= 200


def test_the_printed_iteration_moves_by_delta_at_most_and_does_not_arrive() -> None:
    x = torch.zeros(10, 1).double()
    x[0] = 1e4
    for t in (10, 100):
        moved = float(printed(L2Norm(), x, 0.1, t)) - 1e3
        assert -0.1 * t - 1e-9 <= moved < 0
    assert float(L2Norm().center(x, torch.ones(10), 0.1, STOP).w) == pytest.approx(0.1 / 9, abs=1e-12)


@pytest.mark.parametrize("psi", [Squared(), Indicator(), Zero()], ids=lambda psi: psi.name)
@given(seeds, parties, dims, deltas)
def test_other_centres_are_the_mean(psi: Penalty, seed: int, K: int, d: int, t: float) -> None:
    x, p = points(seed, K, d)
    found = psi.center(x, p, t, STOP)
    np.testing.assert_allclose(found.w, np.average(x.numpy(), axis=0, weights=p.numpy()), atol=1e-12)
    assert found.residual <= 1e-12 and found.iterations == 0


@given(seeds, parties, dims)
def test_without_weights_the_coordinate_median_is_numpys(seed: int, K: int, d: int) -> None:
    x, _ = points(seed, K, d)
    found = L1Norm().center(x, torch.ones(K), 0.0, STOP)
    np.testing.assert_allclose(found.w, np.median(x.numpy(), axis=0), atol=1e-12)


@pytest.mark.few(1)
@NORMS
@given(seeds, parties, dims, deltas)
def test_a_weight_is_so_many_points(psi: Penalty, seed: int, K: int, d: int, t: float) -> None:
    x, _ = points(seed, K, d)
    p = torch.randint(1, 4, (K,), generator=torch.Generator().manual_seed(seed))
    weighed = psi.center(x, p, t, STOP).w.numpy()
    repeated = psi.center(x.repeat_interleave(p, 0), torch.ones(int(p.sum())), t, STOP).w.numpy()
    weights = p.double().numpy()
    assert value(psi, weighed, x.numpy(), weights, t) == pytest.approx(
        value(psi, repeated, x.numpy(), weights, t), abs=1e-10
    )


@NORMS
@given(seeds, parties, dims, deltas)
def test_the_order_and_the_origin_do_not_matter(psi: Penalty, seed: int, K: int, d: int, t: float) -> None:
    x, p = points(seed, K, d)
    order, shift = torch.randperm(K, generator=torch.Generator().manual_seed(seed)), 7.0
    one, other = psi.center(x, p, t, STOP).w, psi.center((x + shift)[order], p[order], t, STOP).w - shift
    X, weights = x.numpy(), p.double().numpy()
    assert value(psi, one.numpy(), X, weights, t) == pytest.approx(
        value(psi, other.numpy(), X, weights, t), abs=1e-10
    )


def test_a_point_with_half_of_the_weight_is_the_geometric_median() -> None:
    x, _ = points(4, 6, 3)
    p = torch.tensor([1.0, 1.0, 5.0, 1.0, 1.0, 1.0])
    found = L2Norm().center(x, p, 0.0, STOP)
    assert torch.equal(found.w, x[2]) and found.residual == 0


@pytest.mark.parametrize("psi", [L2Norm(), L1Norm(), Squared()], ids=lambda psi: psi.name)
@given(seeds, parties, dims, st.sampled_from([0.1, 1.0]))
def test_any_penalty_has_a_centre_by_its_prox_alone(psi: Penalty, seed: int, K: int, d: int, t: float) -> None:
    x, p = points(seed, K, d)
    found = accelerated(x, p, lambda c: psi.gradient(c, t), t, Stop(1e-10, 20000))
    exact = psi.center(x, p, t, STOP).w
    shares = p.double() / p.sum()
    assert found.residual <= 1e-10
    torch.testing.assert_close(
        shares @ psi.envelope(x - found.w, t), shares @ psi.envelope(x - exact, t), atol=1e-9, rtol=0
    )


@dataclass(frozen=True)
class Elastic(Penalty):
    """||x||_1 + ||x||^2, which has no solver of its own."""

    name: ClassVar[str] = "elastic"

    def value(self, x: Tensor) -> Tensor:
        return (x.abs() + x.square()).sum(-1)

    def prox(self, x: Tensor, t: float) -> Tensor:
        return (x - x.clamp(-t, t)) / (1 + 2 * t)


@pytest.mark.parametrize("size", [None, 1e4])
def test_a_penalty_of_ones_own_has_the_centre_that_scipy_finds(size: float | None) -> None:
    psi, t = Elastic(), 0.2
    x, p = points(5, 6, 3)
    x[0] = x[0] if size is None else size

    def of(w: Array) -> tuple[float, Array]:
        c, shares = x - torch.from_numpy(w), p.double() / p.sum()
        return float(shares @ psi.envelope(c, t)), (-shares @ psi.gradient(c, t)).numpy()

    best = optimize.minimize(of, x.mean(0).numpy(), jac=True, method="BFGS", options={"gtol": 1e-9})
    found = psi.center(x, p, t, Stop(1e-10))
    np.testing.assert_allclose(found.w, best.x, rtol=1e-6, atol=1e-6)
    assert np.linalg.norm(of(found.w.numpy())[1]) <= 1e-9 and found.iterations <= 200
    with pytest.raises(SettingError, match=r"Elastic\(\) needs a delta above 0"):
        psi.center(x, p, 0.0, STOP)


@NORMS
def test_the_cap_is_kept_and_what_is_left_is_said(psi: Penalty) -> None:
    x, p = points(1, 40, 5)
    capped = psi.center(x, p, 0.1, Stop(1e-12, 1))
    assert capped.iterations == 1
    left = np.linalg.norm(slope(psi, capped.w.numpy(), x.numpy(), p.double().numpy(), 0.1))
    assert capped.residual == pytest.approx(left, rel=1e-9) and left > 1e-6
    generic = accelerated(x, p, lambda c: psi.gradient(c, 0.1), 0.1, Stop(1e-12, 1))
    assert generic.iterations == 1 and generic.residual > 1e-6


@NORMS
@pytest.mark.parametrize("t", [0.0, 0.1])
def test_a_nan_is_not_hidden_and_ends_the_search(psi: Penalty, t: float) -> None:
    x, p = points(1, 5, 2)
    x[2, 1] = float("nan")
    found = psi.center(x, p, t, STOP)
    assert found.w[1].isnan() and np.isnan(found.residual) and found.iterations <= 1


@NORMS
def test_points_in_float32_are_solved_in_float64(psi: Penalty) -> None:
    x, p = points(2, 7, 3)
    x[0] = 1e30
    single = psi.center(x.float(), p, 0.1, STOP)
    assert single.w.dtype == torch.float64
    check(psi, single, x.float().double(), p, 0.1)
