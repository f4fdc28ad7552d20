"""lp-proj's linear problem: losses against simulated rounds, thresholds against root finders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from descant.errors import SettingError
from descant.theory import Estimate, FederatedRegression, printed
from descant.theory.checks import lpproj
from descant.theory.checks.findings import Agreement
from descant.theory.regression import Attack, heterogeneity

FIGURE_1 = FederatedRegression()
SMALL = FederatedRegression(n=10, N=5, N_a=2, d=4, d_sub=2, b=1.5, sigma=0.8, Sigma=0.3, M=4.0)

problems = st.builds(
    FederatedRegression,
    n=st.integers(1, 300),
    N=st.integers(3, 50),
    N_a=st.integers(0, 2),
    d=st.integers(4, 50),
    d_sub=st.integers(1, 3),
    b=st.floats(0.1, 5),
    sigma=st.floats(0.1, 3),
    Sigma=st.floats(0.01, 2),
    M=st.floats(5, 100),
)
lambdas = st.floats(1e-3, 1e3)


def one_round(
    problem: FederatedRegression,
    w: np.ndarray,
    P: np.ndarray,
    attack: Attack | None,
    tau: float,
    lam: float,
    trials: int,
) -> dict[str, np.ndarray]:
    """The benign clients' mean losses after one round, from data: least squares fits, and any orthonormal P."""
    p, rng = problem, np.random.default_rng(8)
    N_b = p.N - p.N_a
    designs = [np.linalg.qr(rng.standard_normal((p.n, p.d)))[0] * (p.n * p.b) ** 0.5 for _ in range(p.N)]
    found = {name: np.empty(trials) for name in ("local", "fedavg", "pfedme", "lp-proj")}
    for t in range(trials):
        fits = np.array(
            [
                X.T @ (X @ w_k + p.sigma * rng.standard_normal(p.n)) / (p.n * p.b)
                for X, w_k in zip(designs, w, strict=True)
            ]
        )

        def received(sent: np.ndarray) -> np.ndarray:
            sent = sent.copy()
            for k in range(N_b, p.N if attack else N_b):
                c = tau * rng.standard_normal()
                if attack == "same-value":
                    sent[k] = c
                elif attack == "sign-flip":
                    sent[k] *= -abs(c)
                else:
                    sent[k] = tau * rng.standard_normal(sent.shape[1])
            return sent.mean(0)

        average, reference = received(fits), received(fits @ P.T)
        models = {
            "local": fits,
            "fedavg": np.tile(average, (p.N, 1)),
            "pfedme": (p.b * fits + lam * average) / (p.b + lam),
            "lp-proj": np.linalg.solve(p.b * np.eye(p.d) + lam * P.T @ P, (p.b * fits + lam * reference @ P).T).T,
        }
        for name, x in models.items():
            test = [
                ((X @ (x_k - w_k) - p.sigma * rng.standard_normal(p.n)) ** 2).sum() / (2 * p.n)
                for X, x_k, w_k in zip(designs[:N_b], x, w, strict=False)
            ]
            found[name][t] = np.mean(test)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("attack", [None, "same-value", "sign-flip", "gaussian"])
def test_losses_are_those_of_a_round_on_data_with_any_orthonormal_projection(attack: Attack | None) -> None:
    problem = SMALL if attack else replace(SMALL, N_a=0)
    tau, lam, rng = SMALL.M**0.5, 0.9, np.random.default_rng(7)
    w = 0.3 + 0.5 * rng.standard_normal((problem.N, problem.d))
    P = np.linalg.qr(rng.standard_normal((problem.d, problem.d_sub)))[0].T

    def seen(models: np.ndarray) -> FederatedRegression:
        """The problem, with the heterogeneity that is in the dimensions tied: it need not be the same in all."""
        if attack == "sign-flip":
            return problem.flipped(models, tau)
        return replace(problem, Sigma=heterogeneity(models[: problem.N - problem.N_a], problem.N))

    for method, values in one_round(problem, w, P, attack, tau, lam, 2000).items():
        exact = seen(w @ P.T if method == "lp-proj" else w).loss(method, lam)
        assert abs(Estimate.of(values).off(exact)) < 4, method


def test_losses_agree_in_the_setting_of_figure_1() -> None:
    rows = [row for row in lpproj.losses(400, 3) if isinstance(row, Agreement)]
    assert len(rows) == 24 and all(row.agrees for row in rows)


def test_the_simulation_has_the_power_to_tell_a_wrong_formula() -> None:
    problem, drawn = lpproj.simulate(None, [("lp-proj", 1.0), ("pfedme", 1.0)], 1000, 0)
    wrong = printed.lp_proj_clean_loss(problem, 1.0)
    assert abs(Estimate.of(drawn["lp-proj", 1.0]).off(wrong)) > 10
    assert (
        abs(Estimate.of(drawn["pfedme", 1.0]).off(replace(problem, Sigma=0.9 * problem.Sigma).loss("pfedme", 1.0)))
        > 10
    )


@example(replace(SMALL, Sigma=0.0, M=0.0))  # attackers are nearer to the truth than others
@example(replace(SMALL, Sigma=0.0, N_a=0))  # clients are alike
@given(problems)
def test_lambda_star_is_where_the_tied_methods_have_their_least_loss(problem: FederatedRegression) -> None:
    for method in ("pfedme", "ditto", "lp-proj"):
        found = minimize_scalar(
            lambda u, m=method: problem.loss(m, float(np.exp(u))), bounds=(-25, 20), method="bounded"
        )
        assert problem.loss(method, problem.lambda_star) <= found.fun * (1 + 1e-12)


@given(problems)
def test_from_the_threshold_on_lp_proj_is_at_most_pfedme(problem: FederatedRegression) -> None:
    """Proposition 16, where the root finder meets the formula."""
    assume(problem.lambda_star < 0.9 * problem.b)

    def gap(u: float) -> float:
        lam = float(np.exp(u))
        return problem.squared_error(lam) - problem.r  # what tying a dimension costs

    root = brentq(gap, np.log(problem.threshold) - 3, np.log(problem.threshold) + 3, xtol=1e-13)
    assert np.exp(root) == pytest.approx(problem.threshold, rel=1e-6)
    for factor, sign in ((0.9, 1), (1.1, -1)):
        lam = factor * problem.threshold
        assert sign * (problem.loss("lp-proj", lam) - problem.loss("pfedme", lam)) > 0


def test_where_the_reference_is_best_there_is_no_threshold() -> None:
    alike = replace(SMALL, Sigma=0.0, M=0.0)
    assert alike.lambda_star == alike.threshold == np.inf
    for lam in (0.1, 10.0, 1e6):
        assert alike.loss("pfedme", lam) < alike.loss("lp-proj", lam)


@given(problems, lambdas)
def test_lp_proj_beats_pfedme_just_where_local_training_beats_lp_proj(p: FederatedRegression, lam: float) -> None:
    local, l2, me = (p.loss(method, lam) for method in ("local", "lp-proj", "pfedme"))
    assume(abs(l2 - me) > 1e-9 * me)
    assert (l2 < me) == (local < l2)
    assert min(local, me) < l2 < max(local, me)


@given(problems, lambdas)
def test_the_special_cases_agree(p: FederatedRegression, lam: float) -> None:
    assert p.loss("ditto", lam) == p.loss("pfedme", lam)
    assert replace(p, d_sub=p.d).loss("lp-proj", lam) == pytest.approx(p.loss("pfedme", lam))
    assert replace(p, d_sub=0).loss("lp-proj", lam) == pytest.approx(p.loss("local", lam))
    assert p.loss("pfedme", 0.0) == pytest.approx(p.loss("local", lam))
    assert p.loss("pfedme", 1e13) == pytest.approx(p.loss("fedavg", lam), rel=1e-9)
    assert p.loss("fedavg", lam) == p.loss("fedavg", np.inf)


def test_losses_of_an_array_are_those_of_its_numbers() -> None:
    grid = np.array([0.0, 0.1, 3.0])
    for method in ("local", "fedavg", "pfedme", "ditto", "lp-proj"):
        by_number = [FIGURE_1.loss(method, float(lam)) for lam in grid]
        np.testing.assert_allclose(np.broadcast_to(FIGURE_1.loss(method, grid), 3), by_number)


def test_figure_1s_threshold_and_not_its_lambda_star_is_the_printed_number() -> None:
    assert FIGURE_1.lambda_star == pytest.approx(2.463e-4, rel=1e-3)
    assert FIGURE_1.threshold == pytest.approx(4.927e-4, rel=1e-3)


def test_where_lambda_star_is_above_b_lp_proj_never_beats_pfedme() -> None:
    p = replace(SMALL, N_a=0, Sigma=1e-4)
    assert p.lambda_star > p.b and p.threshold == np.inf
    grid = np.geomspace(1e-6, 1e6, 200)
    assert (p.loss("lp-proj", grid) > p.loss("pfedme", grid)).all()


def test_drawn_models_are_equally_heterogeneous_in_all_dimensions() -> None:
    w = FIGURE_1.models(np.random.default_rng(2))
    assert w.shape == (100, 100)
    for dims in (slice(0, 10), slice(0, 100), slice(37, 38)):
        assert heterogeneity(w[:80, dims], 100) == pytest.approx(FIGURE_1.Sigma)
    flipped, first = FIGURE_1.flipped(w, 3.0), FIGURE_1.flipped(w[:, :10], 3.0)
    np.testing.assert_allclose((flipped.Sigma, flipped.M), (first.Sigma, first.M))


@pytest.mark.parametrize(("field", "value"), [("N_a", 100), ("d_sub", 101), ("b", 0.0), ("Sigma", -1.0)])
def test_a_bad_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=rf"FederatedRegression\.{field} = "):
        replace(FIGURE_1, **{field: value})
