"""lp-proj's Theorem 14 (Lin et al., 2024): the schedule, and a problem on which its error is known exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from descant.errors import require
from descant.theory.montecarlo import Array


@dataclass(frozen=True)
class Theorem14:
    """The step sizes of Theorem 14, for F_k mu_F-strongly convex with condition number kappa_F."""

    mu_F: float
    kappa_F: float = 1.0
    beta: float = 1.0
    R: int = 1

    def __post_init__(self) -> None:
        require(self, "mu_F", self.mu_F > 0, "a positive number")
        require(self, "kappa_F", self.kappa_F >= 1, "1 or more")
        require(self, "beta", self.beta >= 1, "1 or more")
        require(self, "R", self.R >= 1, "a positive number")

    @property
    def zeta(self) -> float:
        return 72 * self.kappa_F * (1 + 7 * self.kappa_F / self.beta)

    def eta(self, t: int) -> float:
        return 8 / (self.beta * self.R * self.mu_F * (self.zeta + t))

    def nu(self, t: int) -> float:
        """The accuracy of the lower level, under client sampling."""
        return 8 / (self.mu_F * (self.zeta + t))


def smoothness(lam: float, mu: float, L: float, s: float = 0.0) -> tuple[float, float]:
    """mu_F and L_F of Proposition 3, of f_k that are mu-strongly convex and L-smooth.

    s bounds how far the singular values of P are from 1: it is 0 for orthonormal rows.
    """
    return lam * mu / ((1 + s) ** 2 * lam + mu), lam * L / ((1 - s) ** 2 * lam + L)


def sampling_error(schedule: Theorem14, rounds: int, start: float, spread: float, N: int, S: int) -> Array:
    """E ||w_t - w*||^2 for t = 0, ..., rounds, where f_k = b/2 ||x - h_k||^2 and P has orthonormal rows.

    `start` is ||w_0 - w*||^2 and `spread` the mean of ||P h_k - w*||^2. There F_k = mu_F/2 ||w - P h_k||^2, and R
    exact steps and an average over S clients, drawn without replacement, make

        w <- w - g_t (w - mean_S P h_k),    g_t = beta (1 - (1 - eta_t mu_F)^R):

    the error shrinks by (1 - g_t)^2 and gains g_t^2 times the variance of the mean of S. It falls as 1/t.
    """
    variance = spread * (N - S) / (S * (N - 1))
    found = np.empty(rounds + 1)
    found[0] = start
    for t in range(rounds):
        g = schedule.beta * (1 - (1 - schedule.eta(t) * schedule.mu_F) ** schedule.R)
        found[t + 1] = (1 - g) ** 2 * found[t] + g**2 * variance
    return found
