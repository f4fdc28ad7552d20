"""lp-proj's linear problem (Lin et al., 2024, section 4.2 and Appendix B): test losses, clean and under attack.

N clients, N_a of them malicious, have n examples each, with Xi_k' Xi_k = n b I in d dimensions and noise sigma, and
fixed true models w_k. Each client's least squares estimate is N(w_k, r I), r = sigma^2 / (b n). One round with
infinitely many local steps gives w, the mean of what the clients send; a malicious client sends

    c 1, c ~ N(0, tau^2) (same-value),  -|c| its own estimate (sign-flip),  N(0, tau^2 I) (Gaussian);

tau is a standard deviation. pFedMe's and Ditto's personal model is (b estimate + lam w) / (b + lam); with P of
orthonormal rows, lp-proj with p = 2 does the same in the d_sub dimensions of P and is local in the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from descant.errors import require
from descant.theory.montecarlo import Array, Value, mix

Attack = Literal["same-value", "sign-flip", "gaussian"]
TIED = ("pfedme", "ditto", "lp-proj")


@dataclass(frozen=True)
class FederatedRegression:
    """The paper's symbols; the defaults are those of Figure 1.

    `Sigma` is the heterogeneity in one dimension, eq. (37), or (36) without attack, or (40) under sign-flips.
    `M` is the variance of a malicious message in one dimension: tau^2, or M_0 of eq. (41) under sign-flips.
    """

    n: int = 200
    N: int = 100
    N_a: int = 20
    d: int = 100
    d_sub: int = 10
    b: float = 1.0
    sigma: float = 1.0
    Sigma: float = 0.1
    M: float = 100.0**2

    def __post_init__(self) -> None:
        for field in ("n", "d", "b", "sigma"):
            require(self, field, getattr(self, field) > 0, "a positive number")
        require(self, "N_a", 0 <= self.N_a < self.N, "from 0 to N - 1")
        require(self, "d_sub", 0 <= self.d_sub <= self.d, "from 0 to d")
        require(self, "Sigma", self.Sigma >= 0, "zero or more")
        require(self, "M", self.M >= 0, "zero or more")

    @property
    def r(self) -> float:
        """The variance of a least squares estimate."""
        return self.sigma**2 / (self.b * self.n)

    @property
    def lambda_star(self) -> float:
        """lambda*_1: where pFedMe, Ditto and lp-proj all have their least loss.

        It is infinite where a client's own estimate is no help beside the reference: where clients are alike, and
        malicious messages vary no more than honest ones.
        """
        harm = self.Sigma + self.N_a / self.N**2 * (self.M - self.r)
        return (1 - 1 / self.N) * self.sigma**2 / self.n / harm if harm > 0 else float("inf")

    @property
    def threshold(self) -> float:
        """Proposition 16: from this lambda on, lp-proj's loss is at most pFedMe's and Ditto's."""
        best = self.lambda_star
        return 2 * best / (1 - best / self.b) if best < self.b else float("inf")

    def squared_error(self, lam: Value) -> Value:
        """E (x - w_k)^2 in a dimension that is tied to the reference, on average over the benign clients."""
        a, c = mix(lam, self.b)
        N_b = self.N - self.N_a
        reference = (N_b * self.r + self.N_a * self.M) / self.N**2 + self.Sigma
        return a**2 * self.r + 2 * a * c * self.r / self.N + c**2 * reference

    def loss(self, method: str, lam: Value) -> Value:
        """The average test loss of the benign clients, eq. (39)."""
        tied = {"local": 0, "fedavg": self.d, "pfedme": self.d, "ditto": self.d, "lp-proj": self.d_sub}[method]
        error = self.squared_error(lam if method in TIED else lam + np.inf)  # FedAvg deploys the reference
        return self.sigma**2 / 2 + self.b / 2 * (tied * error + (self.d - tied) * self.r)

    def models(self, rng: np.random.Generator) -> Array:  # [N, d]
        """True models, the malicious clients' last, that are equally heterogeneous in all dimensions.

        Each dimension is a permutation of the same numbers, within the benign and within the malicious clients.
        """
        N_b = self.N - self.N_a
        benign, malicious = rng.normal(0.2, 1.0, N_b), rng.normal(0.2, 1.0, self.N_a)
        scale = (self.Sigma / heterogeneity(benign[:, None], self.N)) ** 0.5
        parts = [np.outer(part, np.ones(self.d)) for part in (benign, malicious)]
        drawn: Array = scale * np.concatenate([rng.permuted(part, axis=0) for part in parts])
        return drawn

    def flipped(self, w: Array, tau: float) -> FederatedRegression:
        """The same problem under sign-flips, for clients with the true models w [N, d]: eqs. (40) and (41)."""
        N_b = self.N - self.N_a
        mean = (w[:N_b].sum(0) - (2 / np.pi) ** 0.5 * tau * w[N_b:].sum(0)) / self.N
        Sigma = float(((mean - w[:N_b]) ** 2).mean())
        M = tau**2 * ((np.pi - 2) / np.pi * float((w[N_b:] ** 2).mean()) + self.r)
        return replace(self, Sigma=Sigma, M=M)

    def estimates(self, rng: np.random.Generator, w: Array, trials: int) -> Array:  # [trials, N, d]
        drawn: Array = w + self.r**0.5 * rng.standard_normal((trials, *w.shape))
        return drawn

    def messages(self, rng: np.random.Generator, estimates: Array, attack: Attack, tau: float, dim: int) -> Array:
        """What the clients send of their estimates in the first `dim` dimensions; the malicious are the last."""
        sent = estimates[:, :, :dim].copy()
        malicious = sent[:, self.N - self.N_a :]
        c = tau * rng.standard_normal((len(sent), self.N_a, 1))
        match attack:
            case "same-value":
                malicious[:] = c
            case "sign-flip":
                malicious *= -abs(c)
            case "gaussian":
                malicious[:] = tau * rng.standard_normal(malicious.shape)
        return sent

    def simulated_losses(
        self, estimates: Array, w: Array, reference: Array | None, lam: float
    ) -> Array:  # [trials, benign clients]
        """The benign clients' test losses; the noise of the test data is known to add sigma^2 / 2.

        `reference` [trials, dim] is what the first `dim` dimensions are tied to; None is local training.
        """
        N_b = self.N - self.N_a
        x = estimates[:, :N_b].copy()
        if reference is not None:
            dim = reference.shape[1]
            a, c = mix(lam, self.b)
            x[:, :, :dim] = a * x[:, :, :dim] + c * reference[:, None]
        losses: Array = self.sigma**2 / 2 + self.b / 2 * ((x - w[:N_b]) ** 2).sum(2)
        return losses


def heterogeneity(benign: Array, N: int) -> float:
    """Sigma_1 of eq. (37), of the benign clients' true models [N_b, d] among N clients."""
    return float(((benign.sum(0) / N - benign) ** 2).mean())
