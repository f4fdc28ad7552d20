"""Fed+'s fixed points, against Algorithm 1 by hand and SciPy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from descant.theory import fedplus, printed
from descant.theory.checks.fedplus import run

SIGMA, DELTA = 0.8, 0.25


@pytest.fixture(scope="module")
def parties() -> tuple[Tensor, Tensor]:
    """Five of them: with an even number, a coordinate-wise median need not be unique."""
    generator = torch.Generator().manual_seed(2)
    X = torch.randn(5, 10, 3, generator=generator, dtype=torch.float64)
    return X.mT @ X / 10, 2 * torch.randn(5, 3, generator=generator, dtype=torch.float64)


PROXES: dict[str, fedplus.Prox] = {
    "zero": lambda x: x,
    "indicator": torch.zeros_like,
    "squared": lambda x: x / (1 + DELTA),
    "l1": partial(fedplus.soft_threshold, delta=DELTA),
    "l2": partial(fedplus.shrink, delta=DELTA),
}


def huber(length: np.ndarray) -> np.ndarray:
    """min over t of DELTA |t| + (length - t)^2 / 2."""
    return np.where(length <= DELTA, length**2 / 2, DELTA * length - DELTA**2 / 2)


ENVELOPES = {  # min over theta of Psi(theta) / sigma + ||x - theta||^2 / 2
    "indicator": lambda x: (x**2).sum() / 2,
    "squared": lambda x: DELTA / (1 + DELTA) * (x**2).sum() / 2,
    "l1": lambda x: huber(np.abs(x)).sum(),
    "l2": lambda x: huber(np.linalg.norm(x, axis=1)).sum(),
}


def gradients(A: Tensor, h: Tensor, W: Tensor) -> Tensor:
    return torch.einsum("kij,kj->ki", A, W - h)


@pytest.mark.parametrize("psi", ["indicator", "squared"])
def test_corollary_1_b_and_c_are_where_algorithm_1_converges(parties: tuple[Tensor, Tensor], psi: str) -> None:
    A, h = parties
    W, w = fedplus.fixed_point(A, h, SIGMA, psi, DELTA)
    found = run(A, h, PROXES[psi], SIGMA, 300)
    torch.testing.assert_close(found, (W, w), atol=1e-10, rtol=0)
    assert float((W - h).abs().max()) > 0.1


def test_corollary_1_a_leaves_every_party_its_own_minimiser(parties: tuple[Tensor, Tensor]) -> None:
    A, h = parties
    W, w = fedplus.fixed_point(A, h, SIGMA, "zero")
    assert w is None
    torch.testing.assert_close(run(A, h, PROXES["zero"], SIGMA, 300)[0], W, atol=1e-10, rtol=0)


@pytest.mark.few(2)
@pytest.mark.parametrize("psi", PROXES)
def test_theorem_2_holds_at_fixed_points_and_not_beside_them(parties: tuple[Tensor, Tensor], psi: str) -> None:
    A, h = parties
    W, w = run(A, h, PROXES[psi], SIGMA, 300)
    assert max(fedplus.residuals(gradients(A, h, W), W, w, PROXES[psi], SIGMA)) < 1e-9
    beside = W + torch.tensor([[0.1], [0.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    assert max(fedplus.residuals(gradients(A, h, beside), beside, w, PROXES[psi], SIGMA)) > 1e-3


@pytest.mark.few(2)
@pytest.mark.parametrize("psi", ENVELOPES)
def test_the_fixed_point_minimises_the_objective(parties: tuple[Tensor, Tensor], psi: str) -> None:
    """H_sigma of (3), minimised over theta by hand and over the parties' models and w by a general solver."""
    A, h = (value.numpy() for value in parties)

    def objective(flat: np.ndarray) -> float:
        W, w = flat[:15].reshape(5, 3), flat[15:]
        f = 0.5 * np.einsum("ki,kij,kj->", W - h, A, W - h)
        return float(f + SIGMA * ENVELOPES[psi](W - w))

    W, w = run(*parties, PROXES[psi], SIGMA, 300)
    found = minimize(objective, np.zeros(18), method="BFGS", options={"gtol": 1e-8})
    assert objective(np.concatenate([W.flatten(), w])) == pytest.approx(found.fun, abs=1e-9)
    np.testing.assert_allclose(W, found.x[:15].reshape(5, 3), atol=1e-4)
    np.testing.assert_allclose(w, found.x[15:], atol=1e-4)


def test_equation_22_holds_at_the_fixed_point_of_the_squared_penalty(parties: tuple[Tensor, Tensor]) -> None:
    A, h = parties
    W, w = fedplus.fixed_point(A, h, SIGMA, "squared", DELTA)
    assert w is not None
    torch.testing.assert_close(w, W.mean(0))
    slope = fedplus.envelope_gradient(A, h, SIGMA, (W + DELTA * w) / (1 + DELTA))
    torch.testing.assert_close(W, w - (1 + DELTA) / (SIGMA * DELTA) * slope)


def test_the_envelopes_gradient_is_that_of_its_minimum(parties: tuple[Tensor, Tensor]) -> None:
    A, h = parties
    z = torch.ones_like(h, requires_grad=True)
    eye = torch.eye(3, dtype=torch.float64)
    x = torch.linalg.solve(A + SIGMA * eye, torch.einsum("kij,kj->ki", A, h) + SIGMA * z)
    value = 0.5 * torch.einsum("ki,kij,kj->", x - h, A, x - h) + SIGMA / 2 * (x - z).square().sum()
    (slope,) = torch.autograd.grad(value, z)
    torch.testing.assert_close(fedplus.envelope_gradient(A, h, SIGMA, z.detach()), slope)


def test_large_and_small_delta_are_the_other_cases(parties: tuple[Tensor, Tensor]) -> None:
    """A stiff penalty forbids theta; a soft one frees the parties."""
    A, h = parties
    torch.testing.assert_close(
        fedplus.fixed_point(A, h, SIGMA, "squared", 1e10), fedplus.fixed_point(A, h, SIGMA, "indicator")
    )
    torch.testing.assert_close(fedplus.fixed_point(A, h, SIGMA, "squared", 1e-10)[0], h)


def test_the_proximal_maps_minimise_what_they_should() -> None:
    x = torch.tensor([[1.5, -0.7, 0.1], [-0.05, 0.1, 0.02]], dtype=torch.float64)
    maps = {
        fedplus.soft_threshold: lambda theta: DELTA * np.abs(theta).sum(),
        fedplus.shrink: lambda theta: DELTA * np.linalg.norm(theta),
    }
    for prox, psi in maps.items():
        for row, found in zip(x.numpy(), prox(x, DELTA).numpy(), strict=True):

            def value(theta: np.ndarray, row: np.ndarray = row, psi: object = psi) -> float:
                return float(psi(theta) + 0.5 * ((theta - row) ** 2).sum())  # type: ignore[operator]

            solved = minimize(value, row, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14})
            assert value(found) <= solved.fun + 1e-9
    negative = torch.tensor([-2.0], dtype=torch.float64)
    assert (
        float(printed.soft_threshold(negative, 0.1)) == 0 and float(fedplus.soft_threshold(negative, 0.1)) == -1.9
    )


def test_a_step_of_the_printed_iteration_moves_at_most_delta() -> None:
    W = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None].clone()
    W[-1] = 1e3
    prox = partial(fedplus.shrink, delta=0.1)
    w = W.mean(0)
    for _ in range(50):
        new = W.mean(0) - prox(W - w).mean(0)
        assert float((new - w).abs()) <= 0.1 + 1e-12
        w = new
    assert fedplus.printed_aggregation(W, prox, 1e-9, 5000)[1] > 900


def test_an_unknown_penalty_is_named(parties: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="psi = 'cubic'"):
        fedplus.fixed_point(*parties, SIGMA, "cubic")
