"""Penalties: the proximal operator, the Moreau envelope and its gradient, against their definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from descant.coupling import PENALTIES, Indicator, L1Norm, L2Norm, Penalty, Squared, Zero


@dataclass(frozen=True)
class Elastic(Penalty):
    """||x||_1 + ||x||^2, of which only value and prox are given, as a user would."""

    name: ClassVar[str] = "elastic"

    def value(self, x: Tensor) -> Tensor:
        return (x.abs() + x.square()).sum(-1)

    def prox(self, x: Tensor, t: float) -> Tensor:
        return (x - x.clamp(-t, t)) / (1 + 2 * t)


FINITE: list[Penalty] = [Squared(), L2Norm(), L1Norm(), Zero(), Elastic()]
ALL = [*FINITE, Indicator()]
EVERY = pytest.mark.parametrize("psi", ALL, ids=lambda psi: psi.name)
EVERY_FINITE = pytest.mark.parametrize("psi", FINITE, ids=lambda psi: psi.name)

times = st.floats(1e-3, 1e2)
scales = st.sampled_from([1e-4, 0.1, 1.0, 30.0, 1e4])
seeds = st.integers(0, 10_000)


def rows(seed: int, scale: float, K: int = 4, d: int = 3) -> Tensor:
    return scale * torch.randn(K, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(psi: Penalty, theta: Tensor, x: Tensor, t: float) -> Tensor:
    """What the prox minimises, [K]."""
    return psi.value(theta) + (x - theta).square().sum(-1) / (2 * t)


@EVERY
@given(seeds, scales, times)
def test_the_prox_is_a_minimiser(psi: Penalty, seed: int, scale: float, t: float) -> None:
    x = rows(seed, scale)
    theta = psi.prox(x, t)
    least = objective(psi, theta, x, t)
    for size in (1e-3, 0.1, 1.0):
        nearby = theta + rows(seed + 1, size * scale)
        assert (least <= objective(psi, nearby, x, t) + 1e-12 * (1 + least)).all()
    for other in (x, torch.zeros_like(x), x / 2):
        assert (least <= objective(psi, other, x, t) + 1e-12 * (1 + least)).all()


@EVERY_FINITE
@given(seeds, scales, times)
def test_what_the_prox_takes_away_is_t_times_a_subgradient(psi: Penalty, seed: int, scale: float, t: float) -> None:
    """psi(z) >= psi(theta) + <(x - theta) / t, z - theta> for every z, which is the optimality of theta."""
    x = rows(seed, scale)
    theta = psi.prox(x, t)
    slope = (x - theta) / t
    for size in (1e-3, 1.0, 100.0):
        z = rows(seed + 2, size * scale)
        support = psi.value(theta) + (slope * (z - theta)).sum(-1)
        rounding = 1e-14 * (scale / t) * (1 + size) * scale  # of (x - theta) / t, times z - theta
        assert (psi.value(z) >= support - 1e-12 * support.abs() - rounding).all()


@pytest.mark.few(2)
@EVERY_FINITE
@pytest.mark.parametrize("t", [0.05, 0.7, 4.0])
def test_the_prox_is_what_scipy_finds(psi: Penalty, t: float) -> None:
    for seed in range(3):
        (x,) = rows(seed, 1.0, K=1, d=2)

        def of(theta: NDArray[np.float64], x: Tensor = x) -> float:
            return float(objective(psi, torch.from_numpy(theta)[None], x[None], t))

        precise = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000}
        # From 0 as well, where the norms have their kink.
        found = [optimize.minimize(of, at, method="Nelder-Mead", options=precise) for at in (x.numpy(), [0.0, 0.0])]
        best = min(found, key=lambda result: float(result.fun))
        theta = psi.prox(x[None], t)
        assert float(psi.envelope(x[None], t)) == pytest.approx(best.fun, abs=1e-9)
        np.testing.assert_allclose(theta[0], best.x, atol=1e-5)


def project(y: NDArray[np.float64], radius: float, norm: str) -> NDArray[np.float64]:
    """The nearest point of the ball of a norm."""
    if norm == "inf":
        return np.clip(y, -radius, radius)
    length = np.sqrt((y**2).sum(1, keepdims=True))
    return np.where(length > radius, y * radius / np.where(length > 0, length, 1), y)


# prox_{psi*/t}(y) of the conjugates: of a norm, the indicator of the dual norm's ball; of the square, itself.
CONJUGATE = {
    "squared": lambda y, t: y / (1 + 1 / t),
    "l1": lambda y, t: project(y, 1.0, "inf"),
    "l2": lambda y, t: project(y, 1.0, "2"),
    "zero": lambda y, t: 0 * y,
    "indicator": lambda y, t: y,
}


@pytest.mark.parametrize("psi", [kind() for kind in PENALTIES.values()], ids=PENALTIES)
@given(seeds, scales, times)
def test_moreaus_decomposition(psi: Penalty, seed: int, scale: float, t: float) -> None:
    """x = prox_{t psi}(x) + t prox_{psi* / t}(x / t)."""
    x = rows(seed, scale)
    dual = CONJUGATE[psi.name](x.numpy() / t, t)
    np.testing.assert_allclose(psi.prox(x, t) + t * dual, x, rtol=1e-12, atol=1e-12 * scale)


@EVERY
@given(seeds, scales, times)
def test_the_envelope_is_the_least_value_and_its_gradient_what_the_prox_takes_away(
    psi: Penalty, seed: int, scale: float, t: float
) -> None:
    x = rows(seed, scale).requires_grad_()
    envelope = psi.envelope(x, t)
    torch.testing.assert_close(envelope, objective(psi, psi.prox(x, t), x, t), rtol=1e-11, atol=1e-14)
    (slope,) = (
        torch.autograd.grad(envelope.sum(), x, materialize_grads=True) if envelope.requires_grad else (0 * x,)
    )
    torch.testing.assert_close(slope, (x - psi.prox(x, t)) / t, rtol=1e-8, atol=1e-10 * scale)
    torch.testing.assert_close(psi.gradient(x, t), (x - psi.prox(x, t)) / t, rtol=1e-8, atol=1e-10 * scale)


@EVERY
@given(seeds, scales, times)
def test_the_prox_is_firmly_nonexpansive(psi: Penalty, seed: int, scale: float, t: float) -> None:
    x, y = rows(seed, scale), rows(seed + 1, scale)
    a, b = psi.prox(x, t), psi.prox(y, t)
    assert ((a - b).square().sum(-1) <= ((a - b) * (x - y)).sum(-1) + 1e-12 * scale**2).all()


@EVERY_FINITE
def test_without_time_to_smooth_there_is_the_penalty_itself(psi: Penalty) -> None:
    x = torch.cat([rows(1, 1.0), torch.zeros(1, 3).double()])
    assert torch.equal(psi.prox(x, 0.0), x)
    assert torch.equal(psi.envelope(x, 0.0), psi.value(x))


@pytest.mark.parametrize(
    ("psi", "slope"),
    [(Squared(), [3.0, -4.0]), (L2Norm(), [0.6, -0.8]), (L1Norm(), [1.0, -1.0]), (Zero(), [0.0, 0.0])],
)
def test_the_least_subgradient_of_the_penalty_itself(psi: Penalty, slope: list[float]) -> None:
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(psi.gradient(x, 0.0), torch.tensor([slope, [0.0, 0.0]]).double())


def test_the_soft_threshold_works_on_both_sides() -> None:
    x = torch.tensor([[3.0, -3.0, 0.5, -0.5, 1.0, -1.0]])
    assert L1Norm().prox(x, 1.0).tolist() == [[2.0, -2.0, 0.0, 0.0, 0.0, 0.0]]


def test_a_model_within_delta_of_the_reference_is_the_reference() -> None:
    x = torch.tensor([[0.03, 0.04], [0.06, 0.08], [3.0, 4.0]], dtype=torch.float64)
    theta = L2Norm().prox(x, 0.1)
    assert theta[:2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(theta[2], 0.98 * x[2])
    assert L2Norm().prox(torch.zeros(1, 2), 0.0).tolist() == [[0.0, 0.0]]


def test_values() -> None:
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
    assert Squared().value(x).tolist() == [12.5, 0.0]
    assert L2Norm().value(x).tolist() == [5.0, 0.0]
    assert L1Norm().value(x).tolist() == [7.0, 0.0]
    assert Zero().value(x).tolist() == [0.0, 0.0]
    assert Indicator().value(x).tolist() == [float("inf"), 0.0]


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_kept_and_rows_do_not_touch_each_other(psi: Penalty, dtype: torch.dtype) -> None:
    x = rows(3, 1.0).to(dtype)
    for of in (psi.prox, psi.envelope, psi.gradient):
        whole, alone = of(x, 0.3), torch.cat([of(row[None], 0.3) for row in x])
        assert whole.dtype == dtype and torch.equal(whole, alone)


def test_they_are_known_by_their_names() -> None:
    assert list(PENALTIES) == ["squared", "l2", "l1", "zero", "indicator"]
