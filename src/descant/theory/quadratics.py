"""What the methods converge to where client k's loss is 1/2 (x - h_k)' A_k (x - h_k), in closed form.

Linear regression is of this kind: A_k = X_k' X_k / n, and h_k is the least squares estimate. A is [K, d, d], or [K]
for multiples b_k of the identity; h is [K, d]. A method's function returns the personal models [K, d] and the
reference.
"""

from __future__ import annotations

import torch
from torch import Tensor


def least_squares(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A [K, d, d] and h [K, d] of 1/(2n) ||X_k x - y_k||^2, from X [K, n, d] and y [K, n]."""
    A = X.mT @ X / X.shape[1]
    return A, torch.linalg.solve(A, (X.mT @ y[..., None] / X.shape[1])[..., 0])


def ditto(A: Tensor, h: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Ditto: w minimises the mean loss, as FedAvg's objective does, and x_k = argmin f_k + lam/2 ||x - w||^2."""
    A = full(A, h)
    w = torch.linalg.solve(A.sum(0), times(A, h).sum(0))
    return _tied(A, h, w, lam), w


def pfedme(A: Tensor, h: Tensor, lam: float, alpha: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """min over w and x of sum_k alpha_k (f_k(x_k) + lam/2 ||x_k - w||^2), alpha = 1/K: pFedMe, and FLAME's (131).

    FLAME's solution (135) reads w = (I - mean_k lam (A_k + lam)^-1)^-1 mean_k (A_k + lam)^-1 A_k h_k; the lambda
    that is printed in its second sum does not belong there. With A_k = b_k I it is (136).
    """
    A = full(A, h)
    alpha = torch.full_like(h[:, 0], 1 / len(h)) if alpha is None else alpha / alpha.sum()
    inverse = torch.linalg.inv(A + lam * torch.eye(h.shape[1], dtype=h.dtype))
    kept = torch.eye(h.shape[1], dtype=h.dtype) - lam * _mean(inverse, alpha)
    w = torch.linalg.solve(kept, _mean(times(inverse, times(A, h)), alpha))
    return _tied(A, h, w, lam), w


def lp_proj(A: Tensor, h: Tensor, lam: float, P: Tensor) -> tuple[Tensor, Tensor]:
    """lp-proj with p = 2 and any P [m, d]: min over w and x of mean_k f_k(x_k) + lam/2 ||w - P x_k||^2."""
    A = full(A, h)
    inverse = torch.linalg.inv(A + lam * P.T @ P)  # [K, d, d]
    kept = torch.eye(len(P), dtype=h.dtype) - lam * (P @ inverse @ P.T).mean(0)
    w = torch.linalg.solve(kept, (times(inverse, times(A, h)) @ P.T).mean(0))
    return times(inverse, times(A, h) + lam * w @ P), w


def full(A: Tensor, h: Tensor) -> Tensor:
    """A as matrices [K, d, d]."""
    return A if A.dim() == 3 else A[:, None, None] * torch.eye(h.shape[1], dtype=h.dtype)


def times(A: Tensor, x: Tensor) -> Tensor:  # [K, d, d], [K, d] -> [K, d]
    """A_k x_k, for every client."""
    product: Tensor = (A @ x[..., None])[..., 0]
    return product


def _mean(values: Tensor, alpha: Tensor) -> Tensor:
    mean: Tensor = torch.tensordot(alpha, values, dims=1)
    return mean


def _tied(A: Tensor, h: Tensor, w: Tensor, lam: float) -> Tensor:
    own: Tensor = torch.linalg.solve(A + lam * torch.eye(h.shape[1], dtype=h.dtype), times(A, h) + lam * w)
    return own
