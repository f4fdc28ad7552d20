"""FLAME on linear regression: Lemma 3, and where Lemma 1 holds and where not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from descant.methods import FLAME
from tests.methods.flame_regression import D, Regression, Vector, distance


@pytest.fixture(scope="module")
def seven() -> Regression:
    return Regression.drawn(7, smoothness=1.5)


@pytest.mark.few(1)
@pytest.mark.parametrize(("cohort", "weighted"), [(None, False), (3, False), (3, True)])
@pytest.mark.parametrize("pull", ["local", "global"])
def test_the_dual_is_what_ties_theta_to_w_i(
    seven: Regression, cohort: int | None, weighted: bool, pull: Any
) -> None:
    """Lemma 3: pi_i = lambda alpha_i (theta_i - w_i) at all times, whatever was done to find theta_i."""
    method = FLAME(lam=0.7, rho=0.2, weighted=weighted, pull=pull, steps=2, batch=2, lr=0.3)
    largest, alpha = 0.0, seven.alpha(weighted)
    for t, s in enumerate(seven.watch(method, rounds=30, cohort=cohort, start=2.0)):
        if weighted and t < 20:
            continue  # n is not told before everyone was heard
        assert distance(s["pi"], 0.7 * alpha[:, None] * (s["theta"] - s["w_i"])) < 1e-14
        largest = max(largest, np.abs(s["pi"]).max())
    assert largest > 1e-3


def lemma_1(lam_alpha: float, rho: float, smoothness_alpha: float) -> tuple[bool, float, float]:
    """Whether its three conditions hold; D_1; and the factor of eps_i in (21), less alpha_i^2 / (1 - upsilon_i)."""
    first = lam_alpha**2 * (1 + rho) / rho**2 - (lam_alpha + rho) / 2
    third = (1 - rho**2) / rho**2 * lam_alpha**2 - (smoothness_alpha + rho) / 2
    return first < 0 and rho >= lam_alpha and third > 0, min(rho / 2, -first), 1 / third


@pytest.mark.slow
@pytest.mark.parametrize("cohort", [None, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_lyapunov_value_falls_under_the_conditions_of_lemma_1(cohort: int | None, seed: int) -> None:
    """By at least D_1 times the squared length of the step, with the inexact rule (17) and (18)."""
    m, lam, rho, smoothness, upsilon = 10, 0.1, 0.057, 0.03, 0.7
    problem, alpha = Regression.drawn(m, smoothness, seed), np.full(m, 1 / m)
    holds, D_1, factor = lemma_1(lam / m, rho, smoothness / m)
    assert holds
    iota = factor / m**2 / (1 - upsilon)
    method = FLAME(lam=lam, rho=rho, batch=None, lr=1 / (lam + smoothness), eps=1e-6, upsilon=upsilon)
    states = list(problem.watch(method, rounds=40, cohort=cohort, start=1.0))
    values = [problem.lagrangian(s, lam, rho, alpha) + iota * s["eps"].sum() for s in states]
    for t, (old, new) in enumerate(pairwise(states)):
        moved = m * np.sum((new["w"] - old["w"]) ** 2)
        moved += np.sum((new["w_i"] - old["w_i"]) ** 2) + np.sum((new["theta"] - old["theta"]) ** 2)
        assert values[t] - values[t + 1] >= D_1 * moved > 0


@pytest.mark.slow
@pytest.mark.parametrize("smoothness", [0.03, 1.0, 50.0])
def test_at_the_papers_settings_lemma_1_does_not_apply_and_the_lagrangian_rises(smoothness: float) -> None:
    """m = 10, lambda = 1 and rho = .1 of section VI, with exact local solutions: it rises, and FLAME converges."""
    m, lam, rho = 10, 1.0, 0.1
    problem, alpha = Regression.drawn(m, smoothness), np.full(m, 1 / m)
    assert not lemma_1(lam / m, rho, smoothness / m)[0]
    method = FLAME(lam=lam, rho=rho, batch=None, lr=1 / (lam + smoothness), eps=1e-8, upsilon=0.75)
    values = [problem.lagrangian(s, lam, rho, alpha) for s in problem.watch(method, rounds=5)]
    assert max(np.diff(values)) > 1e-4
    if smoothness >= 1:
        w, _ = problem.solution(lam, alpha, np.eye(D))
        assert distance(problem.last(method, rounds=100)["w"], w) < 1e-6


def test_the_conditions_of_lemma_1_leave_a_narrow_band() -> None:
    """At lambda alpha = .01 and L = 0: rho from .0564 to .0584; from lambda alpha = .15 on there is none."""
    grid = np.arange(0.0001, 1.0, 0.0001)

    def band(lam_alpha: float) -> Vector:
        return np.array([rho for rho in grid if lemma_1(lam_alpha, rho, 0.0)[0]])

    assert band(0.01).min() == pytest.approx(0.0564, abs=2e-4) and band(0.01).max() == pytest.approx(
        0.0584, abs=2e-4
    )
    assert len(band(0.15)) == 0 == len(band(0.5))
