"""Ditto's linear problems (Li et al., 2021, section 3.3): point estimation and linear regression.

Device k has a model v_k ~ N(theta, tau^2 I) in d dimensions, n examples with X_k' X_k = n b I and noise sigma, and
the loss F_k(v) = 1/(2n) ||X_k v - y_k||^2. A malicious device's model is drawn from N(theta, tau_a^2 I). Point
estimation is d = b = 1. All there is to know of the data is the local estimate v_k + z_k, with z_k ~ N(0, r I) and
r = sigma^2 / (b n), so that with w the mean of all local estimates, Ditto's personal model is
(b (v_k + z_k) + lam w) / (b + lam), and its error, coordinate by coordinate,

    e_k = a z_k + c (w - v_k),    a = b / (b + lam),  c = lam / (b + lam).

With s = E (w - v_k)^2, and E z_k (w - v_k) = r / K, the error of a benign device is

    V = E e_k^2 = a^2 r + 2 a c r / K + c^2 s.

dV/dlam = 0 gives a (r - r / K) = c (s - r / K), which is lam* / b = c / a; s - r / K is
(1 - 1/K) (tau^2 + K_a / (K (K - 1)) (tau_a^2 - tau^2)), so that

    lam* = sigma^2 / n  *  K / (K tau^2 + K_a / (K - 1) (tau_a^2 - tau^2)).

This is the paper's Theorem 8, and since b cancels, it is its analogue for linear regression too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from descant.errors import require
from descant.theory.montecarlo import Array, Value, mix


@dataclass(frozen=True)
class DittoProblem:
    """K devices, K_a of them malicious; the paper's symbols. The defaults are those of Figure 1, clean."""

    sigma: float = 0.8
    n: int = 30
    tau: float = 0.1
    K: int = 8
    K_a: int = 0
    tau_a: float = 0.5
    b: float = 1.0
    d: int = 1

    def __post_init__(self) -> None:
        for field in ("sigma", "n", "tau", "b", "d"):
            require(self, field, getattr(self, field) > 0, "a positive number")
        require(self, "K", self.K >= 2, "2 or more")
        require(self, "K_a", 0 <= self.K_a <= self.K - 2, "from 0 to K - 2: two devices at least are benign")

    @property
    def r(self) -> float:
        """The variance of a local estimate."""
        return self.sigma**2 / (self.b * self.n)

    @property
    def lambda_star(self) -> float:
        """The lambda of the least error on benign devices."""
        attack = self.K_a / (self.K - 1) * (self.tau_a**2 - self.tau**2)
        return self.sigma**2 / self.n * self.K / (self.K * self.tau**2 + attack)

    def error(self, lam: Value) -> Value:
        """E ||v - v_k||^2 of a benign device. lam = 0 is local training, lam = inf the global model."""
        return self.d * self._moments(lam)[0]

    def variance(self, lam: Value) -> Value:
        """E of the variance, over the benign devices, of their squared errors: what is fair has little of it.

        The errors of two devices are jointly normal: their squares have variance 2 V^2 and covariance 2 C^2.
        """
        V, C = self._moments(lam)
        K_b = self.K - self.K_a
        return (K_b - 1) / K_b * 2 * self.d * (V**2 - C**2)

    @property
    def fairest(self) -> float:
        """The lambda of the least variance: V^2 - C^2 is a polynomial of degree 4 in c = lam / (b + lam)."""
        P = np.polynomial.Polynomial
        c, a = P([0.0, 1.0]), P([1.0, -1.0])
        s, cross = self._spread()
        V, C = a**2 * self.r + 2 * a * c * self.r / self.K + c**2 * s, 2 * a * c * self.r / self.K + c**2 * cross
        spread = V**2 - C**2
        roots = [complex(x) for x in spread.deriv().roots()]
        inside = [x.real for x in roots if abs(x.imag) < 1e-9 and 0 < x.real < 1]
        best = min([0.0, *inside], key=lambda x: float(spread(x)))
        return self.b * best / (1 - best)

    @property
    def informed_error(self) -> float:
        """The error of the best estimator of all for one who knows which devices are malicious.

        The others' estimates, weighed by their precision, locate theta; that and the own estimate locate v_k.
        """
        others = (self.K - self.K_a - 1) / (self.tau**2 + self.r) + self.K_a / (self.tau_a**2 + self.r)
        return self.d / (1 / self.r + 1 / (self.tau**2 + 1 / others))

    def bayes(self, estimates: Array) -> Array:  # [trials, K] -> [trials]
        """The posterior mean of the model of device 0, which is benign, from the local estimates of all, at d = 1.

        It knows that K_a others are malicious, but not which: a mixture over the ways to choose them. The total
        precision is the same in each, and so are the normalising factors.
        """
        ways = np.array([[j in chosen for j in range(self.K - 1)] for chosen in self._choices()])
        precision = 1 / (self.r + np.where(ways, self.tau_a, self.tau) ** 2)  # [ways, K - 1]
        total = float(precision[0].sum())
        own, others = estimates[:, :1], estimates[:, 1:]
        theta = others @ precision.T / total  # [trials, ways]
        scatter = others**2 @ precision.T - total * theta**2
        width = 1 / total + self.tau**2 + self.r  # the variance of the own estimate around theta
        fit = scatter + (own - theta) ** 2 / width
        weight = np.exp((fit.min(1, keepdims=True) - fit) / 2)
        mean = own + self.r / width * (theta - own)
        found: Array = (weight * mean).sum(1) / weight.sum(1)
        return found

    def estimates(self, rng: np.random.Generator, trials: int) -> tuple[Array, Array]:
        """Draw the devices' models and their local estimates, [trials, K, d] each; the malicious are the last."""
        tau = np.where(np.arange(self.K) < self.K - self.K_a, self.tau, self.tau_a)[:, None]
        v = tau * rng.standard_normal((trials, self.K, self.d))  # theta = 0: the estimators are equivariant
        return v, v + self.r**0.5 * rng.standard_normal(v.shape)

    def squared_errors(self, v: Array, estimates: Array, lam: float) -> Array:  # [trials, benign devices]
        """What Ditto makes of the estimates: the squared errors of the benign devices."""
        a, c = mix(lam, self.b)
        personal = a * estimates + c * estimates.mean(1, keepdims=True)
        errors: Array = ((personal - v) ** 2).sum(2)[:, : self.K - self.K_a]
        return errors

    def _choices(self) -> combinations[tuple[int, ...]]:
        return combinations(range(self.K - 1), self.K_a)

    def _spread(self) -> tuple[float, float]:
        """E (w - v_k)^2, and E (w - v_k) (w - v_j), of benign devices k and j."""
        K_b = self.K - self.K_a
        w = ((K_b * self.tau**2 + self.K_a * self.tau_a**2) / self.K + self.r) / self.K  # the variance of w
        cross = w - 2 * self.tau**2 / self.K
        return cross + self.tau**2, cross

    def _moments(self, lam: Value) -> tuple[Value, Value]:
        """E e_k^2 and E e_k e_j, for a coordinate."""
        a, c = mix(lam, self.b)
        s, cross = self._spread()
        shared = 2 * a * c * self.r / self.K
        return a**2 * self.r + shared + c**2 * s, shared + c**2 * cross


FIGURE_1 = {"clean": DittoProblem(), "attacked": DittoProblem(K=16, K_a=8)}
FIGURE_2 = {
    "clean": DittoProblem(sigma=1.0, n=20, K=20),
    "attacked": DittoProblem(sigma=0.5, n=10, K=10, K_a=3, tau_a=0.1),
}
FIGURE_2_TAU = np.arange(0.0001, 1.0, 0.05)
