"""Ditto's linear problems: closed forms against data, other solvers, and each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from descant.errors import SettingError
from descant.theory import DittoProblem, Estimate, FederatedRegression
from descant.theory.ditto import FIGURE_1, FIGURE_2, FIGURE_2_TAU
from descant.theory.montecarlo import generator

REGRESSION = DittoProblem(sigma=0.9, n=9, tau=0.4, K=7, K_a=2, tau_a=1.1, b=2.5, d=3)
PROBLEMS = {**FIGURE_1, "regression": REGRESSION, "few": DittoProblem(K=2), "weak attack": FIGURE_2["attacked"]}
ALL = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)

problems = st.builds(
    DittoProblem,
    sigma=st.floats(0.1, 3),
    n=st.integers(1, 50),
    tau=st.floats(0.05, 2),
    K=st.integers(4, 30),
    K_a=st.integers(0, 2),
    tau_a=st.floats(0.05, 5),
    b=st.floats(0.2, 5),
    d=st.integers(1, 5),
)


def fitted(problem: DittoProblem, trials: int, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Models and Ditto's squared errors from data, one trial after the other: no formula of the package is used."""
    rng = np.random.default_rng(5)
    p, K_b = problem, problem.K - problem.K_a
    errors = np.empty((trials, K_b))
    for t in range(trials):
        v, fits = np.empty((p.K, p.d)), np.empty((p.K, p.d))
        for k in range(p.K):
            v[k] = 3.0 + (p.tau if k < K_b else p.tau_a) * rng.standard_normal(p.d)
            X = np.linalg.qr(rng.standard_normal((p.n, p.d)))[0] * (p.n * p.b) ** 0.5
            y = X @ v[k] + p.sigma * rng.standard_normal(p.n)
            fits[k] = np.linalg.lstsq(X, y, rcond=None)[0]
        w = fits.mean(0)  # the minimiser of the mean loss, where all devices have the same X'X
        for k in range(K_b):
            # min 1/(2n) ||X v - y||^2 + lam/2 ||v - w||^2, by its normal equations
            x = np.linalg.solve((p.b + lam) * np.eye(p.d), p.b * fits[k] + lam * w)
            errors[t, k] = ((x - v[k]) ** 2).sum()
    return errors.mean(1), errors.var(1)


@pytest.mark.slow
@pytest.mark.parametrize("lam", [0.0, 0.8, 4.0])
def test_error_and_variance_are_those_of_models_fitted_to_data(lam: float) -> None:
    errors, variances = fitted(REGRESSION, 1500, lam)
    assert abs(Estimate.of(errors).off(REGRESSION.error(lam))) < 4
    assert abs(Estimate.of(variances).off(REGRESSION.variance(lam))) < 4


@ALL
@pytest.mark.parametrize("lam", [0.0, 0.3, 2.0, 1000.0, np.inf])
def test_error_and_variance_are_those_simulated(problem: DittoProblem, lam: float) -> None:
    v, estimates = problem.estimates(generator(1, "test"), 20_000)
    errors = problem.squared_errors(v, estimates, lam)
    assert abs(Estimate.of(errors.mean(1)).off(problem.error(lam))) < 4
    assert abs(Estimate.of(errors.var(1)).off(problem.variance(lam))) < 4


def test_the_simulation_has_the_power_to_tell_a_wrong_formula() -> None:
    """Leaving out what w shares with the device's own noise, or the devices with each other, shows at once."""
    p, lam = replace(REGRESSION, tau_a=2.0), 2.0
    v, estimates = p.estimates(generator(1, "test"), 20_000)
    errors = p.squared_errors(v, estimates, lam)
    a, c = p.b / (p.b + lam), lam / (p.b + lam)
    assert abs(Estimate.of(errors.mean(1)).off(p.error(lam) - p.d * 2 * a * c * p.r / p.K)) > 10
    independent = (p.K - p.K_a - 1) / (p.K - p.K_a) * 2 * p.error(lam) ** 2 / p.d
    assert abs(Estimate.of(errors.var(1)).off(independent)) > 10


@given(problems)
def test_lambda_star_is_where_the_error_is_least(problem: DittoProblem) -> None:
    """In u = log lambda, by a minimiser that knows nothing of the derivation."""
    found = minimize_scalar(
        lambda u: problem.error(float(np.exp(u))), bounds=(-20, 20), method="bounded", options={"xatol": 1e-10}
    )
    assert problem.error(problem.lambda_star) <= found.fun * (1 + 1e-12)
    assert np.exp(found.x) == pytest.approx(problem.lambda_star, rel=1e-3)


@given(problems)
def test_the_fairest_lambda_is_where_the_variance_is_least(problem: DittoProblem) -> None:
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 4001)])
    best = problem.variance(problem.fairest)
    assert best <= problem.variance(grid).min() * (1 + 1e-9)


@given(problems)
def test_without_attack_lambda_star_is_the_fairest_too(problem: DittoProblem) -> None:
    clean = replace(problem, K_a=0)
    assert clean.fairest == pytest.approx(clean.lambda_star, rel=1e-5)
    assert clean.lambda_star == pytest.approx(clean.sigma**2 / (clean.n * clean.tau**2))


def test_under_attack_another_lambda_is_fairer() -> None:
    p = FIGURE_1["attacked"]
    assert p.variance(p.fairest) < p.variance(p.lambda_star) * 0.995 and p.fairest > 1.1 * p.lambda_star


@given(problems, st.floats(0.1, 10))
def test_lambda_star_does_not_depend_on_b_and_error_is_point_estimations(problem: DittoProblem, b: float) -> None:
    assert replace(problem, b=b).lambda_star == pytest.approx(problem.lambda_star)
    point = replace(problem, sigma=problem.sigma / problem.b**0.5, b=1.0, d=1)
    assert problem.error(1.7) == pytest.approx(problem.d * point.error(1.7 / problem.b))


@ALL
def test_lambda_0_is_local_and_lambda_infinite_is_global(problem: DittoProblem) -> None:
    p = problem
    assert p.error(0.0) == pytest.approx(p.d * p.r)
    assert p.error(1e12) == pytest.approx(p.error(np.inf), rel=1e-9)
    others = ((p.K - p.K_a - 1) * p.tau**2 + p.K_a * p.tau_a**2) / p.K**2
    assert p.error(np.inf) == pytest.approx(p.d * ((1 - 1 / p.K) ** 2 * p.tau**2 + others + p.r / p.K))
    assert p.error(p.lambda_star) <= min(p.error(0.0), p.error(np.inf))


@given(problems)
def test_lambda_star_falls_with_samples_with_unrelated_devices_and_with_stronger_attacks(p: DittoProblem) -> None:
    assert replace(p, n=2 * p.n).lambda_star < p.lambda_star
    assert replace(p, tau=2 * p.tau).lambda_star < p.lambda_star
    attacked = replace(p, K_a=1, tau_a=2 * p.tau)
    assert attacked.lambda_star < replace(p, K_a=0).lambda_star
    assert replace(attacked, K_a=2).lambda_star < attacked.lambda_star
    assert replace(attacked, tau_a=3 * p.tau).lambda_star < attacked.lambda_star


def test_lambda_star_is_lp_projs_averaged_over_the_models() -> None:
    """lp-proj fixes the true models; drawn as Ditto draws them, they have this heterogeneity in the mean."""
    p = REGRESSION
    rng = np.random.default_rng(0)
    w = p.tau * rng.standard_normal((200_000, p.K - p.K_a))
    drawn = float(((w.sum(1, keepdims=True) / p.K - w) ** 2).mean())
    Sigma = p.tau**2 * (1 - 2 / p.K + (p.K - p.K_a) / p.K**2)
    assert drawn == pytest.approx(Sigma, rel=0.01)
    other = FederatedRegression(p.n, p.K, p.K_a, p.d, 0, p.b, p.sigma, Sigma, p.tau_a**2 + p.r)
    assert other.lambda_star == pytest.approx(p.lambda_star, rel=1e-12)


def by_conditioning(problem: DittoProblem, x: np.ndarray, malicious: list[int]) -> tuple[float, float]:
    """The mean and variance of v_0 given all estimates, and given who is malicious, from the joint normal law."""
    tau2 = np.array([problem.tau_a**2 if k in malicious else problem.tau**2 for k in range(problem.K)])
    wide = 1e6  # the prior of theta
    covariance = np.full((problem.K, problem.K), wide) + np.diag(tau2 + problem.r)
    with_v0 = np.full(problem.K, wide)
    with_v0[0] += tau2[0]
    gain = np.linalg.solve(covariance, with_v0)
    return float(gain @ x), float(wide + tau2[0] - gain @ with_v0)


def test_ditto_at_lambda_star_is_the_posterior_mean_without_attack() -> None:
    p = DittoProblem(K=5)
    _, estimates = p.estimates(generator(3, "test"), 20)
    a, c = 1 / (1 + p.lambda_star), p.lambda_star / (1 + p.lambda_star)
    ditto = a * estimates[:, 0, 0] + c * estimates[:, :, 0].mean(1)
    posterior = [by_conditioning(p, x, [])[0] for x in estimates[:, :, 0]]
    np.testing.assert_allclose(ditto, posterior, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(p.bayes(estimates[:, :, 0]), ditto, rtol=1e-9)
    assert p.informed_error == pytest.approx(p.error(p.lambda_star))


def test_the_informed_error_is_the_posterior_variance() -> None:
    p = DittoProblem(K=6, K_a=2, tau=0.3, tau_a=0.8)
    assert p.informed_error == pytest.approx(by_conditioning(p, np.zeros(6), [4, 5])[1], rel=1e-5)


def test_the_posterior_mean_under_attack_is_the_mixture_over_who_is_malicious() -> None:
    from itertools import combinations

    p = DittoProblem(K=5, K_a=2, tau=0.2, tau_a=1.0)
    _, estimates = p.estimates(generator(4, "test"), 6)
    for x, found in zip(estimates[:, :, 0], p.bayes(estimates[:, :, 0]), strict=True):
        weights, means = [], []
        for chosen in combinations(range(1, 5), 2):
            tau2 = np.array([p.tau_a**2 if k in chosen else p.tau**2 for k in range(5)])
            covariance = np.full((5, 5), 1e4) + np.diag(tau2 + p.r)
            likelihood = -0.5 * (x @ np.linalg.solve(covariance, x) + np.linalg.slogdet(covariance)[1])
            weights.append(likelihood)
            means.append(by_conditioning(p, x, list(chosen))[0])
        share = np.exp(np.array(weights) - max(weights))
        assert found == pytest.approx(float(share @ means / share.sum()), abs=1e-4)


def test_under_attack_the_posterior_mean_beats_ditto_and_is_beaten_by_the_informed() -> None:
    p = DittoProblem(K=8, K_a=3)
    v, estimates = p.estimates(generator(6, "test"), 20_000)
    ditto = p.squared_errors(v, estimates, p.lambda_star)[:, 0]
    bayes = (p.bayes(estimates[:, :, 0]) - v[:, 0, 0]) ** 2
    assert Estimate.of(ditto - bayes).off(0.0) > 5
    assert p.informed_error < bayes.mean() < p.error(p.lambda_star)


def test_the_figures_settings_are_the_papers() -> None:
    assert (FIGURE_1["clean"].K, FIGURE_1["attacked"].K, FIGURE_1["attacked"].K_a) == (8, 16, 8)
    assert FIGURE_1["clean"].lambda_star == pytest.approx(0.64 / 30 / 0.01)
    assert len(FIGURE_2_TAU) == 20 and FIGURE_2_TAU[-1] < 1


@pytest.mark.parametrize(("field", "value"), [("K", 1), ("K_a", 7), ("sigma", 0.0), ("tau", -1.0)])
def test_a_bad_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=rf"DittoProblem\.{field} = "):
        replace(DittoProblem(), **{field: value})
