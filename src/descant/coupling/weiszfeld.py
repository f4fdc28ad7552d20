"""Weiszfeld's iteration: the geometric median by a few weighted means."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.coupling.centers import Center, shares
from descant.coupling.columns import mixture
from descant.coupling.distances import norms

_FAR = 1e140  # sums of squares of such numbers are finite


def weiszfeld(x: Tensor, p: Tensor, nu: float, steps: int, start: Tensor) -> Center:
    """So many steps of the smoothed Weiszfeld algorithm (RFA, Pillutla et al., 2022) on x [K, d], from `start` [d].

    w <- sum_k beta_k w_k / sum_k beta_k, beta_k = p_k / max(nu, ||w_k - w||). What it converges to is the geometric
    median smoothed by nu (`descant.coupling.medians`): (w - w_k) / max(nu, ||w - w_k||) is the derivative of
    Huber's function. The residual is that before the last step, which is known without another look.
    """
    low, high = torch.aminmax(x) if x.numel() else (x.sum(), x.sum())
    if not (low > -_FAR and high < _FAR):  # what is infinitely far pulls by its direction alone
        x = x.double().clamp(-_FAR, _FAR)
    w, p, residual = start.double(), shares(p, start.double()), float("nan")
    for _ in range(steps):
        beta = p / norms(x, w).clamp(min=nu)
        last, w = w, mixture(x, beta / beta.sum())
        residual = float(beta.sum() * torch.linalg.vector_norm(w - last))  # ||sum_k beta_k (w_k - last)||
    return Center(w, residual, steps)
