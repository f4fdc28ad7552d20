"""Weiszfeld's iteration, against a loop over messages and against SciPy at full convergence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from descant.aggregators import GeometricMedian
from descant.coupling import Stop
from descant.coupling.medians import geometric_median
from descant.errors import SettingError

STARTS = ("median", "mean", "zero")


def drawn(s: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    g = torch.Generator().manual_seed(seed)
    leaves = {
        "delta": torch.randn(s, 4, generator=g, dtype=torch.float64),
        "matrix": torch.randn(s, 2, 3, generator=g, dtype=torch.float64),
    }
    return leaves, torch.randint(1, 9, (s,), generator=g, dtype=torch.int32)


def by_hand(x: np.ndarray, p: np.ndarray, nu: float, steps: int, start: str) -> np.ndarray:
    """Algorithm 2 of RFA, one message after the other."""
    p = p / p.sum()
    repeated = np.repeat(x, (p * 1e6).round().astype(int), axis=0) if start == "median" else x
    w = {"median": np.median(repeated, axis=0), "mean": p @ x, "zero": np.zeros(x.shape[1])}[start]
    for _ in range(steps):
        total, beta = np.zeros_like(w), 0.0
        for k in range(len(x)):
            b = p[k] / max(nu, np.sqrt(((x[k] - w) ** 2).sum()))
            total, beta = total + b * x[k], beta + b
        w = total / beta
    return w


@given(st.integers(1, 9), st.integers(0, 10_000), st.integers(1, 5), st.sampled_from(STARTS), st.booleans())
def test_so_many_steps_are_those_of_a_loop_over_messages(
    s: int, seed: int, steps: int, start: Any, weighted: bool
) -> None:
    leaves, n = drawn(s, seed)
    weighted = weighted and start != "median"
    p = n.double().numpy() if weighted else np.ones(s)
    found = GeometricMedian(weiszfeld=steps, delta=0.3, start=start)(leaves, n if weighted else None)
    for name, leaf in leaves.items():
        expected = by_hand(leaf.numpy().reshape(s, -1), p, 0.3, steps, start)
        np.testing.assert_allclose(found[name].numpy().ravel(), expected, rtol=1e-11, atol=1e-12)


def test_the_weighted_median_is_where_it_starts() -> None:
    leaf = torch.tensor([[0.0, 5.0], [1.0, 6.0], [9.0, 7.0]], dtype=torch.float64)
    found = GeometricMedian(weiszfeld=1, delta=1e-6)({"x": leaf}, torch.tensor([1, 1, 3]))["x"]
    torch.testing.assert_close(found, leaf[2], rtol=0, atol=1e-4)  # it starts at the third, which holds it


@pytest.mark.slow
@pytest.mark.parametrize("nu", [1e-3, 0.5, 20.0])
@pytest.mark.parametrize("seed", range(4))
def test_many_steps_are_the_minimum_of_the_smoothed_sum_of_distances(nu: float, seed: int) -> None:
    leaves, n = drawn(9, seed)
    leaves = {"delta": leaves["delta"]}
    x, p = leaves["delta"].numpy(), n.double().numpy() / int(n.sum())

    def objective(w: np.ndarray) -> float:  # Huber's function of the distances
        d = np.linalg.norm(x - w, axis=1)
        return float(p @ np.where(d <= nu, d**2 / (2 * nu), d - nu / 2))

    least = minimize(objective, x.mean(0), method="BFGS", options={"gtol": 1e-10})
    found = {start: GeometricMedian(weiszfeld=3000, delta=nu, start=start)(leaves, n)["delta"] for start in STARTS}  # type: ignore[arg-type]
    solved = geometric_median(leaves["delta"], n, nu, Stop()).w
    for w in found.values():
        np.testing.assert_allclose(w, least.x, atol=1e-5)
        assert objective(w.numpy()) <= least.fun + 1e-12
        torch.testing.assert_close(w, solved, rtol=1e-8, atol=1e-8)


def test_what_is_left_and_what_it_took_are_reported() -> None:
    leaves, _ = drawn(7, 1)
    left = []
    for steps in (1, 5, 50, 500):
        figures: dict[str, float] = {}
        GeometricMedian(weiszfeld=steps, delta=0.1)({"x": leaves["delta"]}, record=figures.__setitem__)
        assert figures["aggregation_iterations"] == steps
        left.append(figures["aggregation_residual"])
    assert left == sorted(left, reverse=True) and left[-1] < 1e-9 < left[0]
    before = GeometricMedian(weiszfeld=4, delta=0.1)({"x": leaves["delta"]})["x"]
    off = before - leaves["delta"]
    slope = (off / off.norm(dim=1, keepdim=True).clamp(min=0.1)).mean(0).norm()
    assert left[1] == pytest.approx(float(slope), rel=1e-9), "before the last step"


@pytest.mark.parametrize("sent", [1e30, -1e30, float("inf")])
@pytest.mark.parametrize("start", STARTS)
def test_few_steps_survive_a_minority_unless_they_start_at_the_mean(sent: float, start: Any) -> None:
    leaves, _ = drawn(11, 3)
    leaf = leaves["delta"]
    leaf[:5] = sent
    found = GeometricMedian(weiszfeld=3, delta=1e-6, start=start)({"x": leaf})["x"]
    assert (float(found.abs().max()) < 20) == (start != "mean")


def test_what_is_no_number_goes_through() -> None:
    leaves, _ = drawn(5, 3)
    leaves["delta"][0, 1] = torch.nan
    assert GeometricMedian(weiszfeld=3, delta=1e-6, start="zero")(leaves)["delta"].isnan().any()


def test_messages_of_no_numbers_stay_so() -> None:
    assert GeometricMedian(weiszfeld=3, delta=0.1)({"x": torch.zeros(4, 0)})["x"].shape == (0,)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"weiszfeld": 0, "delta": 0.1}, r"GeometricMedian\.weiszfeld = 0"),
        ({"weiszfeld": 3}, r"GeometricMedian\.delta = 0\.0: it must be a positive number, RFA's nu"),
        ({"weiszfeld": 3, "delta": 0.1, "start": "best"}, r"GeometricMedian\.start"),
        ({"start": "mean"}, r"'median' unless weiszfeld is given"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        GeometricMedian(**settings)
