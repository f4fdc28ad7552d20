"""FLAME's first round and Propositions 2 and 3, against literal rounds, derivatives and counterexamples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.errors import SettingError
from descant.theory import Estimate, OneRound, flame, printed, quadratics
from descant.theory.regression import Attack

ATTACKS: tuple[Attack, ...] = ("same-value", "sign-flip", "gaussian")
THETA = np.random.default_rng(0).normal(0.5, 0.8, (6, 3))
PROBLEM = OneRound(THETA, m_a=2, N=12, b=1.4, sigma=0.9, lam=0.7, gamma=1.3)
ALPHA, RHO = 1 / 6, 0.2


def first_round(p: OneRound, attack: Attack, trials: int) -> tuple[float, dict[str, np.ndarray]]:
    """Algorithm 1's first round as (12) to (16) have it, from zero and from data, client by client."""
    rng = np.random.default_rng(9)
    m, d = p.theta.shape
    m_b, lam_alpha = m - p.m_a, p.lam * ALPHA
    found = {"global": np.empty(trials), "personal": np.empty(trials)}
    X = np.linalg.qr(rng.standard_normal((p.N, d)))[0] * (p.N * p.b) ** 0.5
    for t in range(trials):
        messages, fits = [], []
        w0 = w0_i = pi0 = np.zeros(d)
        for i in range(m):
            y = X @ p.theta[i] + p.sigma * rng.standard_normal(p.N)
            fits.append(np.linalg.solve(X.T @ X, X.T @ y))
            theta_i = (p.b * fits[i] + p.lam * w0_i) / (p.b + p.lam)
            w_i = (lam_alpha * theta_i + RHO * w0 - pi0) / (lam_alpha + RHO)
            pi = pi0 + RHO * (w_i - w0)
            u = w_i + pi / RHO
            if i >= m_b:
                c = p.gamma * rng.standard_normal()
                u = {"same-value": np.full(d, c), "sign-flip": -abs(c) * u}.get(
                    attack, p.gamma * rng.standard_normal(d)
                )
            messages.append(u)
        w = np.mean(messages, axis=0)
        personal = [(p.b * fit + p.lam * w) / (p.b + p.lam) for fit in fits[:m_b]]
        for name, models in (("global", [w] * m_b), ("personal", personal)):
            excess = [((X @ (x - theta)) ** 2).sum() / (2 * p.N) for x, theta in zip(models, p.theta, strict=False)]
            found[name][t] = p.sigma**2 / 2 + np.mean(excess)
    return flame.gain(p.lam, ALPHA, RHO, p.b), found


@pytest.mark.few(1)
@pytest.mark.parametrize("attack", ATTACKS)
def test_losses_are_those_of_the_first_round_of_algorithm_1(attack: Attack) -> None:
    q, found = first_round(PROBLEM, attack, 1500)
    assert 0.3 < q < 0.6
    for model, values in found.items():
        assert abs(Estimate.of(values).off(PROBLEM.loss(model, attack)(q))) < 4
        assert abs(Estimate.of(values).off(PROBLEM.loss(model, attack)(q + 0.2))) > 4  # it could tell another q


def test_the_gain_is_below_one_where_rho_is_at_least_lambda_alpha() -> None:
    assert flame.gain(1.0, 0.1, 0.1, 1.0) == pytest.approx(0.5)
    assert flame.gain(0.3, 0.1, 0.03, 2.0) == pytest.approx(2.0 / 2.3)


@given(st.integers(0, 10_000), st.sampled_from(ATTACKS), st.sampled_from(["global", "personal"]))
def test_the_threshold_of_proposition_2_is_where_the_slope_vanishes(seed: int, attack: Attack, model: str) -> None:
    rng = np.random.default_rng(seed)
    p = replace(PROBLEM, theta=rng.normal(rng.normal(), 1.0, (5, 2)), m_a=int(rng.integers(0, 4)))
    curve = p.loss(model, attack)
    step = 1e-5
    assert curve(curve.least + step) - curve(curve.least - step) == pytest.approx(0, abs=1e-9)
    for q in rng.uniform(0, 1, 10):
        if abs(q - (2 * curve.least - 1)) > 1e-6:
            assert curve.beats_one(q) == (curve(float(q)) <= curve(1.0))


def test_the_personal_threshold_under_same_value_attacks_is_the_papers() -> None:
    p = PROBLEM
    m, d = p.theta.shape
    m_b = m - p.m_a
    length = float((p.theta[:m_b].mean(0) ** 2).sum())
    by_hand = m * p.b * (m_b * p.N * p.lam * length - d * p.sigma**2)
    by_hand /= d * p.sigma**2 * m_b * p.lam + m_b**2 * p.N * p.b * p.lam * length
    assert p.loss("personal", "same-value").least == pytest.approx(by_hand)
    corrected = m * p.N * p.b * length / (d * p.sigma**2 + m_b * p.N * p.b * length)
    assert p.loss("global", "same-value").least == pytest.approx(corrected)
    assert printed.flame_global_threshold(p) != pytest.approx(corrected, rel=0.05)


def test_at_q_1_and_without_attack_the_loss_is_pfedmes_of_lp_projs_paper() -> None:
    from descant.theory import FederatedRegression

    p = replace(PROBLEM, m_a=0)
    spread = float(((p.theta.mean(0) - p.theta) ** 2).mean())
    other = FederatedRegression(p.N, 6, 0, 3, 0, p.b, p.sigma, spread, 0.0)
    for attack in ATTACKS:
        assert p.loss("personal", attack)(1.0) == pytest.approx(other.loss("pfedme", p.lam))
        assert p.loss("global", attack)(1.0) == pytest.approx(other.loss("fedavg", p.lam))


@given(st.integers(0, 10_000), st.floats(0.01, 1.5))
def test_the_spread_is_the_variance_of_the_squared_bias(seed: int, q: float) -> None:
    theta = np.random.default_rng(seed).normal(1.0, 1.0, (7, 3))
    direct = float(((q * theta.mean(0) - theta) ** 2).sum(1).var())
    assert flame.bias_spread(theta)(q) == pytest.approx(direct, rel=1e-9, abs=1e-9)


@given(st.integers(0, 10_000))
def test_proposition_3_holds_where_all_models_have_the_same_norm(seed: int) -> None:
    theta = np.random.default_rng(seed).normal(0.5, 1.0, (6, 3))
    spread = flame.bias_spread(theta / np.linalg.norm(theta, axis=1, keepdims=True))
    values = spread(np.linspace(0.05, 1.0, 20))
    assert (np.diff(values) > 0).all()


def test_proposition_3_fails_elsewhere() -> None:
    spread = flame.bias_spread(np.array([[3.0], [1.0]]))
    assert spread(1.0) == 0 and spread(0.5) == 4
    large = flame.bias_spread(np.random.default_rng(1).normal(1.0, 1.0, (200_000, 3)))
    assert large.least == pytest.approx(1.0, abs=0.02)  # q = 1 is the fairest: pFedMe's and Ditto's


def test_the_solution_135_needs_no_second_lambda() -> None:
    b = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    h = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 1.0]], dtype=torch.float64)
    w = quadratics.pfedme(b, h, 0.4)[1]
    torch.testing.assert_close(printed.flame_135(b, h, 0.4), 0.4 * w)
    torch.testing.assert_close(
        printed.flame_135(b, h, 1.0), quadratics.pfedme(b, h, 1.0)[1]
    )  # it hides at lambda = 1


def test_lemma_1_leaves_a_narrow_band() -> None:
    """By a grid, straight from the three conditions."""

    def allowed(rho: np.ndarray, x: float, L: float) -> np.ndarray:
        first = x**2 * (1 + rho) / rho**2 - (x + rho) / 2 < 0
        third = (1 - rho**2) / rho**2 * x**2 - (L + rho) / 2 > 0
        return first & (rho >= x) & third

    grid = np.linspace(1e-4, 1.5, 300_000)
    for x, L in ((0.01, 0.0), (0.01, 0.003), (0.03, 0.005), (0.1, 0.0)):
        inside = grid[allowed(grid, x, L)]
        band = flame.lemma_1_band(x, L)
        assert band is not None
        assert band == pytest.approx((inside.min(), inside.max()), abs=1e-5)
    for x, L in ((0.01, 0.008), (0.15, 0.0), (1.0, 0.0)):
        assert not allowed(grid, x, L).any() and flame.lemma_1_band(x, L) is None
    band = flame.lemma_1_band(0.01, 0.003)
    assert band is not None and band[0] < 0.057 < band[1]  # m = 10, lambda = 0.1, rho = 0.057, L = 0.03


def test_a_bad_setting_is_named() -> None:
    with pytest.raises(SettingError, match=r"OneRound\.m_a = 6"):
        replace(PROBLEM, m_a=6)
