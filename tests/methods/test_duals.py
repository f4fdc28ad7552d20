"""Losses in their dual form, against a search for the maximum."""

from __future__ import annotations

from math import exp, log, log1p

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from descant.methods.duals import DUALS

SIGNS, SCORES, SHARES = st.sampled_from([-1.0, 1.0]), st.floats(-20, 20), st.floats(0, 1)
CURVES = st.floats(1e-6, 1e6)


def loss(name: str, y: float, s: float) -> float:
    return {
        "hinge": lambda: max(0.0, 1 - y * s),
        "logistic": lambda: log1p(exp(-y * s)),
        "squared": lambda: (s - y) ** 2,
    }[name]()


def conjugate(name: str, y: float, a: float) -> float:
    """l*(-a), as it is on paper."""
    p = y * a
    if name == "squared":
        return a * a / 4 - a * y
    entropy = sum(-t * log(t) for t in (p, 1 - p) if t > 0)
    return -p if name == "hinge" else -entropy


def one(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor(number, dtype=torch.float64) for number in numbers]


@pytest.mark.parametrize("name", DUALS)
@given(y=SIGNS, s=SCORES, p=SHARES)
def test_the_gap_is_the_loss_its_conjugate_and_their_product(name: str, y: float, s: float, p: float) -> None:
    found = float(DUALS[name].gap(*one(y * p, y, s)))
    assert found == pytest.approx(loss(name, y, s) + conjugate(name, y, y * p) + y * p * s, abs=1e-9)
    assert found >= -1e-12


@pytest.mark.parametrize("name", DUALS)
@given(y=SIGNS, s=SCORES)
def test_the_conjugate_is_the_largest_distance_from_a_line(name: str, y: float, s: float) -> None:
    """At a = -l'(s) the gap is zero, so that no other score makes -a t - l(t) larger."""
    slope = {"hinge": -y if y * s < 1 else 0.0, "logistic": -y / (1 + exp(y * s)), "squared": 2 * (s - y)}[name]
    assert float(DUALS[name].gap(*one(-slope, y, s))) == pytest.approx(0, abs=1e-9)
    others = torch.linspace(-30, 30, 601, dtype=torch.float64)
    values = [slope * float(t) - loss(name, y, float(t)) for t in others]
    assert max(values) <= conjugate(name, y, -slope) + 1e-9


@pytest.mark.parametrize("name", DUALS)
@given(y=SIGNS, s=SCORES, p=SHARES, q=CURVES)
def test_a_step_goes_to_the_top(name: str, y: float, s: float, p: float, q: float) -> None:
    a = y * p

    def height(b: float) -> float:
        return -conjugate(name, y, b) - s * (b - a) - q / 2 * (b - a) ** 2

    found = float(DUALS[name].ascend(*one(a, y, s, q)))
    assert name == "squared" or 0 <= y * found <= 1
    ends = (-100.0, 100.0) if name == "squared" else (min(0.0, y), max(0.0, y))
    searched = minimize_scalar(lambda b: -height(b), bounds=ends, method="bounded", options={"xatol": 1e-12})
    assert height(found) >= -searched.fun - 1e-9 * (1 + abs(searched.fun))


@given(y=SIGNS, s=SCORES, p=SHARES, q=CURVES)
def test_a_logistic_step_solves_its_equation(y: float, s: float, p: float, q: float) -> None:
    """log((1 - t) / t) = y s + q (t - p): there the slope of the dual is zero."""
    t = y * float(DUALS["logistic"].ascend(*one(y * p, y, s, q)))
    if 1e-12 < t < 1 - 1e-3:
        assert log((1 - t) / t) - y * s - q * (t - p) == pytest.approx(0, abs=1e-7 * (1 + q))


def test_an_example_of_zeros_has_a_dual_too() -> None:
    nothing = one(0.0, -1.0, 0.0, 0.0)
    assert {name: float(dual.ascend(*nothing)) for name, dual in DUALS.items()} == {
        "hinge": -1.0,
        "logistic": -0.5,
        "squared": -2.0,
    }
