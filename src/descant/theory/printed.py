"""Formulas as the papers print them, where they do not hold: kept apart from what the oracles use."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from descant.theory.flame import OneRound
from descant.theory.montecarlo import mix
from descant.theory.quadratics import full, times
from descant.theory.regression import FederatedRegression


def lp_proj_clean_loss(problem: FederatedRegression, lam: float) -> float:
    """lp-proj, Appendix B.2, last line of L^l2 (and of L^Me at d_sub = d): Sigma is divided by N."""
    a, c = mix(lam, problem.b)
    noise = a**2 + 2 * a * c / problem.N + c**2 / problem.N
    tied = noise * problem.r + c**2 * problem.Sigma / problem.N
    return problem.sigma**2 / 2 + problem.b / 2 * (problem.d_sub * tied + (problem.d - problem.d_sub) * problem.r)


def lemma_29_lambda(problem: FederatedRegression) -> float:
    """lp-proj, Lemma 29 with the printed A, B, C of the clean case: (2 C - B b) / (2 A b - B)."""
    b, N, noise = problem.b, problem.N, problem.sigma**2 * problem.d / problem.n
    A, B, C = noise / (2 * N) + b * problem.d * problem.Sigma / (2 * N), noise * b / N, noise * b**2 / 2
    return (2 * C - B * b) / (2 * A * b - B)


def expected_loss_variance(square: float, N: int, b: float, lam: float) -> float:
    """lp-proj, eqs. (46) to (48), with square = sum of Sigma_ij^2."""
    return b**2 * mix(lam, b)[1] ** 4 * (N - 1) * (N - 2) / N**2 * square


def flame_135(A: Tensor, h: Tensor, lam: float) -> Tensor:
    """FLAME, the w* of (135)."""
    A, eye = full(A, h), torch.eye(h.shape[1], dtype=h.dtype)
    inverse = torch.linalg.inv(A + lam * eye)
    w: Tensor = torch.linalg.solve(eye - lam * inverse.mean(0), lam * times(inverse, times(A, h)).mean(0))
    return w


def flame_144(problem: OneRound) -> float:
    """FLAME, (144), the clean loss of the personal models: (b + lambda^2) for (b + lambda)^2 in the last term."""
    m, d = problem.theta.shape
    b, lam = problem.b, problem.lam
    bias = float(((problem.theta.mean(0) - problem.theta) ** 2).sum())
    noise = (m * b**2 + 2 * b * lam + lam**2) / (m * (b + lam) ** 2) * problem.sigma**2 * d / (2 * problem.N)
    return float(problem.sigma**2 / 2 + noise + b * lam**2 / (2 * m * (b + lam**2)) * bias)


def flame_161(problem: OneRound) -> float:
    """FLAME, (161) at q = 1, sign-flips: m for N under sigma^2, and the bias summed over the malicious clients."""
    m, d = problem.theta.shape
    benign, malicious = problem.theta[: m - problem.m_a], problem.theta[m - problem.m_a :]
    gamma2, r = problem.gamma**2, problem.sigma**2 / (problem.b * m)
    V = gamma2 * ((pi - 2) / pi * float((malicious**2).sum()) + problem.m_a * d * r)
    theta_m = (benign.sum(0) - (2 / pi) ** 0.5 * problem.gamma * malicious.sum(0)) / m
    bias = float(((theta_m - malicious) ** 2).sum()) / len(benign)
    return float(problem.sigma**2 / 2 + problem.b / 2 * ((len(benign) * d * r + V) / m**2 + bias))


def flame_global_threshold(problem: OneRound) -> float:
    """FLAME, Proposition 2, same-value attacks: no ||theta_b||^2 beside m_b N b."""
    m, d = problem.theta.shape
    m_b = m - problem.m_a
    length = float((problem.theta[:m_b].mean(0) ** 2).sum())
    return float(m * problem.N * problem.b * length / (d * problem.sigma**2 + m_b * problem.N * problem.b))


def soft_threshold(x: Tensor, delta: float) -> Tensor:
    """Fed+, eq. (12): max(0, x - delta sign(x))."""
    return (x - delta * x.sign()).clamp(min=0)
