"""lp-proj's Proposition 18 and Theorem 32, checked, in both readings of 'the variance of test losses'."""

from __future__ import annotations

import numpy as np

from descant.theory import printed
from descant.theory.checks.findings import Claim, Finding, against, simulated
from descant.theory.fairness import expected_loss_variance, realised_loss_variance
from descant.theory.montecarlo import Array, generator, mix

PAPER = "lp-proj"
N, D, D_SUB, B, R = 10, 8, 3, 1.0, 0.2  # R = sigma^2 / (b n), the variance of a local estimate
TIED = {"local": 0, "pfedme": D, "lp-proj": D_SUB}


def covariance() -> Array:
    """A covariance of the true models that is neither a multiple of I nor diagonal."""
    root = np.tril(np.full((D, D), 0.15)) + np.diag(np.linspace(0.3, 0.8, D))
    product: Array = root @ root.T
    return product


def best() -> float:
    """The lambda of the least loss where the models are drawn with this covariance: sigma^2 / n over its mean."""
    return B * R / float(np.trace(covariance()) / D)


def variances(trials: int, seed: int) -> list[Finding]:
    S = covariance()
    rng = generator(seed, "fairness")
    w = rng.standard_normal((trials, N, D)) @ np.linalg.cholesky(S).T + 1.0
    estimates = w + R**0.5 * rng.standard_normal(w.shape)
    found: list[Finding] = []
    for lam in (best(), 2.0):
        for method, tied in TIED.items():
            c = mix(lam, B)[1]
            bias = B / 2 * c**2 * ((w.mean(1, keepdims=True) - w)[:, :, :tied] ** 2).sum(2)
            x = estimates.copy()
            x[:, :, :tied] += c * (estimates.mean(1, keepdims=True) - estimates)[:, :, :tied]
            losses = B / 2 * ((x - w) ** 2).sum(2)
            exact = realised_loss_variance(S[:tied, :tied], N, B, lam, R, D - tied)
            where, label = "Theorem 32", f"{method} at {lam:.3g}"
            if tied:
                expected = expected_loss_variance(S[:tied, :tied], N, B, lam)
                found.append(simulated(PAPER, where, f"variance, expected losses, {label}", expected, bias.var(1)))
            found.append(simulated(PAPER, where, f"variance, realised losses, {label}", exact, losses.var(1)))
    return [*found, _printed(S, w)]


def _printed(S: Array, w: Array) -> Claim:
    bias = B / 2 * ((w.mean(1, keepdims=True) - w) ** 2).sum(2)
    as_printed = printed.expected_loss_variance(float((S**2).sum()), N, B, np.inf)
    right = expected_loss_variance(S, N, B, np.inf)
    holds, numbers = against("", as_printed, bias.var(1), right)
    return Claim(
        PAPER, "(46) to (48)", "E V = b^2 (N - 1)(N - 2) / N^2 sum Sigma_ij^2 for FedAvg", holds, numbers, "formula"
    )


def statements(trials: int, seed: int) -> list[Finding]:
    S, grid = covariance(), np.geomspace(1e-3, 1e3, 601)
    expected = {m: expected_loss_variance(S[:t, :t], N, B, grid) for m, t in TIED.items()}
    at = {m: realised_loss_variance(S[:t, :t], N, B, best(), R, D - t) for m, t in TIED.items()}
    at_1 = {m: expected_loss_variance(S[:t, :t], N, B, 1.0) for m, t in TIED.items()}
    below = _fairer_below(S, grid)
    far = _fairer_below(10 * S, grid)
    return [
        Claim(
            PAPER,
            "Appendix B.4",
            "larger lambda leads to more fairness",
            bool((np.diff(expected["pfedme"]) <= 0).all()),
            f"V^Me is {expected['pfedme'][0]:.2g} at 0.001 and {expected['pfedme'][-1]:.2g} at 1000",
            "formula",
        ),
        Claim(
            PAPER,
            "Proposition 18",
            "E V^l2 <= E V^Me for all lambda, of losses in expectation over the training noise",
            bool((expected["lp-proj"] <= expected["pfedme"]).all()),
            "on 601 lambdas; at 1: " + ", ".join(f"{m} {value:.3g}" for m, value in at_1.items()),
        ),
        Claim(
            PAPER,
            "Proposition 18",
            "(asked here) the same, of the losses of the models at hand",
            not below,
            f"pFedMe is the fairer below lambda = {below:.2g}, and lp-proj above; with ten times the covariance of "
            f"the true models, below {far:.2g}. At the lambda of the least loss, {best():.2g}: "
            f"pFedMe {at['pfedme']:.4g}, lp-proj {at['lp-proj']:.4g}, local {at['local']:.4g}",
            "question",
        ),
    ]


def _fairer_below(S: Array, grid: Array) -> float:
    """The lambda up to which the losses of pFedMe's models at hand vary less than lp-proj's, or 0."""
    me = realised_loss_variance(S, N, B, grid, R, 0)
    lp_proj = realised_loss_variance(S[:D_SUB, :D_SUB], N, B, grid, R, D - D_SUB)
    return float(grid[me < lp_proj].max(initial=0.0))
