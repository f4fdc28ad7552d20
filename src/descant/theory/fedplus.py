"""Fed+'s fixed points (Theorem 2 and Corollary 1): what is true of them, and where they are for quadratics.

A fixed point is W [N, d], the parties' models, and w [d], their aggregate; theta_k = prox_{Psi/sigma}(w_k - w) and
z_k = w + theta_k. The gradient of the Moreau envelope of f_k at z_k is that of f_k at prox_{f_k/sigma}(z_k), which
is w_k at a fixed point: Theorem 2 can be checked with nothing but the gradients at W.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from descant.theory import quadratics

Prox = Callable[[Tensor], Tensor]  # of Psi / sigma, applied to the rows


def residuals(gradients: Tensor, W: Tensor, w: Tensor, prox: Prox, sigma: float) -> tuple[float, float]:
    """How far (W, w) is from (19), from the parties' gradients [N, d] at W: both are zero at a fixed point.

    The first is the length of mean_k grad f_k(w_k), the second the largest of grad f_k(w_k) + sigma (w_k - z_k).
    """
    z = w + prox(W - w)
    local = torch.linalg.vector_norm(gradients + sigma * (W - z), dim=1)
    return float(torch.linalg.vector_norm(gradients.mean(0))), float(local.max())


def envelope_gradient(A: Tensor, h: Tensor, sigma: float, z: Tensor) -> Tensor:
    """The gradient of (18) at the rows of z, for f_k = 1/2 (x - h_k)' A_k (x - h_k).

    It is sigma (z - prox_{f_k/sigma}(z)).
    """
    A = quadratics.full(A, h)
    eye = torch.eye(h.shape[1], dtype=h.dtype)
    nearest = torch.linalg.solve(A + sigma * eye, quadratics.times(A, h) + sigma * z)
    gradient: Tensor = sigma * (z - nearest)
    return gradient


def fixed_point(A: Tensor, h: Tensor, sigma: float, psi: str, delta: float = 0.1) -> tuple[Tensor, Tensor | None]:
    """W and w of Corollary 1 for f_k = 1/2 (x - h_k)' A_k (x - h_k).

    (a) psi = "zero": every party has its own minimiser, and any w will do: None.
    (b) psi = "indicator" of 0: theta = 0, and (3) is pFedMe's objective with lambda = sigma.
    (c) psi = "squared", sigma delta / 2 ||.||^2: minimised over theta, (3) is pFedMe's objective with
        lambda = sigma delta / (1 + delta), the weight that is left of two springs in a row.
    """
    match psi:
        case "zero":
            return h, None
        case "indicator":
            return quadratics.pfedme(A, h, sigma)
        case "squared":
            return quadratics.pfedme(A, h, sigma * delta / (1 + delta))
    raise ValueError(f"psi = {psi!r}: it must be 'zero', 'indicator' or 'squared'")


def soft_threshold(x: Tensor, delta: float) -> Tensor:
    """prox of delta ||.||_1, two-sided: eq. (12) as it must be read."""
    kept: Tensor = x.sign() * (x.abs() - delta).clamp(min=0)
    return kept


def shrink(x: Tensor, delta: float) -> Tensor:
    """prox of delta ||.||_2, of the rows."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    kept: Tensor = x * (1 - delta / length.clamp(min=delta))
    return kept


def printed_aggregation(
    W: Tensor, prox: Prox, tolerance: float, most: int, start: Tensor | None = None
) -> tuple[Tensor, int]:
    """The iteration (13) from the mean, or `start`, until w moves by at most `tolerance`, and its number of steps.

    With a prox that leaves at most delta of a distance (the l1 and l2 norms), a step moves w by at most delta: an
    outlier costs steps in proportion to its size.
    """
    mean = W.mean(0)
    w = mean if start is None else start
    for step in range(1, most + 1):
        w, before = mean - prox(W - w).mean(0), w
        if float((w - before).abs().max()) <= tolerance:
            return w, step
    return w, most
