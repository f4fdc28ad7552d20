"""The variance of losses over clients, in both readings, against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from descant.theory import Estimate, printed
from descant.theory.fairness import expected_loss_variance, realised_loss_variance

N, B, R = 6, 1.4, 0.15
ROOT = np.array([[0.9, 0.0, 0.0, 0.0], [0.4, 0.5, 0.0, 0.0], [-0.3, 0.2, 0.8, 0.0], [0.1, 0.6, -0.2, 0.3]])
S = ROOT @ ROOT.T


def simulated(tied: int, lam: float, trials: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """The variances over clients, trial by trial: of losses in expectation over the noise, and of those at hand."""
    rng = np.random.default_rng(11)
    w = 2.0 + rng.standard_normal((trials, N, 4)) @ ROOT.T
    z = R**0.5 * rng.standard_normal(w.shape)
    reference = (w + z).mean(1, keepdims=True)
    x = w + z
    x[:, :, :tied] = ((B * (w + z) + lam * reference) / (B + lam))[:, :, :tied]
    bias = lam / (B + lam) * (w.mean(1, keepdims=True) - w)[:, :, :tied]
    losses = B / 2 * ((x - w) ** 2).sum(2)
    return (B / 2 * (bias**2).sum(2)).var(1), losses.var(1)


@pytest.mark.parametrize("lam", [0.2, 3.0])
@pytest.mark.parametrize("tied", [0, 2, 4])
def test_the_variances_are_those_simulated(tied: int, lam: float) -> None:
    expected, realised = simulated(tied, lam)
    part = S[:tied, :tied]
    assert abs(Estimate.of(realised).off(realised_loss_variance(part, N, B, lam, R, 4 - tied))) < 4
    if tied:
        assert abs(Estimate.of(expected).off(expected_loss_variance(part, N, B, lam))) < 4
    else:
        assert expected_loss_variance(part, N, B, lam) == 0 == expected.max()


def test_the_printed_expectation_is_twice_the_variance() -> None:
    expected, _ = simulated(4, 3.0)
    wrong = printed.expected_loss_variance(float((S**2).sum()), N, B, 3.0)
    assert Estimate.of(expected).off(wrong) < -20
    assert wrong == pytest.approx(2 * expected_loss_variance(S, N, B, 3.0))


def test_without_noise_the_two_readings_are_one() -> None:
    assert realised_loss_variance(S, N, B, 0.7, 0.0, 0) == pytest.approx(expected_loss_variance(S, N, B, 0.7))


def test_local_training_varies_with_its_noise_alone() -> None:
    """A loss at hand is B/2 R times chi squared of 4 degrees: its variance is B^2/4 R^2 2 * 4."""
    expected = B**2 / 4 * R**2 * 8 * (1 - 1 / N)
    assert realised_loss_variance(S[:0, :0], N, B, 1.0, R, 4) == pytest.approx(expected)
    assert realised_loss_variance(S, N, B, 0.0, R, 0) == pytest.approx(expected)


def test_which_method_is_fair_depends_on_the_reading() -> None:
    lam = B * R / (np.trace(S) / 4)  # of the least loss
    part = S[:2, :2]
    assert 0 < expected_loss_variance(part, N, B, lam) < expected_loss_variance(S, N, B, lam)
    pfedme = realised_loss_variance(S, N, B, lam, R, 0)
    lp_proj = realised_loss_variance(part, N, B, lam, R, 2)
    local = realised_loss_variance(S[:0, :0], N, B, lam, R, 4)
    assert pfedme < lp_proj < local
