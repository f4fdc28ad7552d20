"""FLAME's linear problem (section V-D and Appendix B), and the conditions of its Lemma 1.

FLAME's objective is pFedMe's, and so is its solution (`descant.theory.quadratics.pfedme`). Propositions 2 and 3 are
of something else: the first round from zero, with exact local steps. It leaves w = (q/m) sum of the estimates, with
q = 2 lam alpha / (lam alpha + rho) * b / (b + lam), and the personal models (b estimate + lam w) / (b + lam). At
q = 1 these are pFedMe's and Ditto's: FLAME's are those, with a reference that has been shrunk towards zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from descant.errors import require
from descant.theory.montecarlo import Array, Value, mix
from descant.theory.regression import Attack


def gain(lam: float, alpha: float, rho: float, b: float) -> float:
    """q, what the first round keeps of the mean of the estimates."""
    return 2 * lam * alpha / (lam * alpha + rho) * b / (b + lam)


@dataclass(frozen=True)
class Quadratic:
    """square q^2 + linear q + constant, with square > 0: a loss as a function of q."""

    square: float
    linear: float
    constant: float

    def __call__(self, q: Value) -> Value:
        return self.square * q**2 + self.linear * q + self.constant

    @property
    def least(self) -> float:
        """The threshold of Proposition 2: the loss rises with q from here on."""
        return -self.linear / (2 * self.square)

    def beats_one(self, q: float) -> bool:
        """Whether q < 1 has at most the loss of q = 1; a parabola is symmetric, so that 2 least - 1 is enough."""
        return q >= 2 * self.least - 1


@dataclass(frozen=True)
class OneRound:
    """The first round of FLAME under attack. `theta` [m, d] are the true models, the m_a malicious ones last."""

    theta: Array
    m_a: int
    N: int
    b: float = 1.0
    sigma: float = 1.0
    lam: float = 1.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        require(self, "m_a", 0 <= self.m_a < len(self.theta), "from 0 to m - 1")
        for field in ("N", "b", "sigma", "lam"):
            require(self, field, getattr(self, field) > 0, "a positive number")

    @property
    def r(self) -> float:
        return self.sigma**2 / (self.b * self.N)

    def loss(self, model: str, attack: Attack) -> Quadratic:
        """The benign clients' average test loss of the "global" or the "personal" models, as a function of q.

        The mean of w is q theta_m, and its total variance q^2 v + u; the same-value and the Gaussian attack do not
        depend on q, a flipped sign does.
        """
        m, d = self.theta.shape
        benign, malicious = self.theta[: m - self.m_a], self.theta[m - self.m_a :]
        flips = attack == "sign-flip"
        pull = (2 / np.pi) ** 0.5 * self.gamma if flips else 0.0
        theta_m = (benign.sum(0) - pull * malicious.sum(0)) / m
        v, u = len(benign) * d * self.r, self.m_a * d * self.gamma**2
        if flips:  # tr V_i = (1 - 2/pi) gamma^2 ||theta_i||^2 + gamma^2 d r
            v, u = v + self.gamma**2 * ((1 - 2 / np.pi) * float((malicious**2).sum()) + self.m_a * d * self.r), 0.0
        distance = float(theta_m @ theta_m), -2 * float(theta_m @ benign.mean(0)), float((benign**2).sum(1).mean())
        a, c = (0.0, 1.0) if model == "global" else mix(self.lam, self.b)
        return Quadratic(
            self.b / 2 * c**2 * (v / m**2 + distance[0]),
            self.b / 2 * (c**2 * distance[1] + 2 * a * c * d * self.r / m),
            self.sigma**2 / 2 + self.b / 2 * (a**2 * d * self.r + c**2 * (u / m**2 + distance[2])),
        )


def bias_spread(theta: Array) -> Quadratic:
    """var over clients of ||q mean - theta_i||^2, (172) and (173): all that varies over clients in the losses.

    It is var(||theta_i||^2 - 2 q mean' theta_i). Where all theta_i have the same norm, only the square is left, and
    the variance rises with q, as Proposition 3 says; elsewhere its minimum can lie anywhere. For theta_i that are
    symmetric about a mean other than 0 it lies at q = 1 as m grows: there FLAME is the less fair.
    """
    along, norm = theta @ theta.mean(0), (theta**2).sum(1)
    covariance = float(((along - along.mean()) * (norm - norm.mean())).mean())
    return Quadratic(4 * float(along.var()), -4 * covariance, float(norm.var()))


def lemma_1_band(lam_alpha: float, L_alpha: float) -> tuple[float, float] | None:
    """The rho that meet the conditions of Lemma 1, for lam alpha and L alpha; None where there are none.

    Its first condition is rho^2 (lam alpha + rho) > 2 (lam alpha)^2 (1 + rho), and holds from a rho on; its third,
    2 (1 - rho^2)(lam alpha)^2 > rho^2 (L alpha + rho), up to one. The second is rho >= lam alpha.
    """
    x2 = 2 * lam_alpha**2
    low = max(_positive_root([1.0, lam_alpha, -x2, -x2]), lam_alpha)
    high = _positive_root([1.0, L_alpha + x2, 0.0, -x2])
    return (low, high) if low < high else None


def _positive_root(cubic: list[float]) -> float:
    """The one positive root of a cubic whose coefficients change sign once."""
    return float(max(root.real for root in np.roots(cubic) if abs(root.imag) < 1e-9))
