"""Distances between messages, right to the last digits where they are close and beside attackers that are far."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 2**22  # numbers that are looked at in one go


def squared_distances(x: Tensor) -> Tensor:
    """||x_i - x_j||^2 [S, S] of rows [S, d], in float64.

    They come from products of matrices: ||x_i||^2 + ||x_j||^2 - 2 <x_i, x_j>. Taken as they are, these numbers lose
    all their digits where models are close to each other and far from zero. So rows are first moved by their
    coordinate-wise median, which a minority of attackers does not move far, and all sums are in float64. A row that
    is not finite, and whatever overflows, is infinitely far from all others.
    """
    S = len(x)
    gram = torch.zeros(S, S, dtype=torch.float64, device=x.device)
    bad = ~x.isfinite().all(1)
    for block in torch.split(x, max(1, _BLOCK // S), dim=1):
        near = block.double().masked_fill(bad[:, None], 0)
        near = near - near.median(0).values
        gram += near @ near.T
    gram = (gram + gram.T) / 2  # two messages are equally far from each other, to the last bit: ties stay ties
    norms = gram.diagonal()
    squared = (norms[:, None] + norms - 2 * gram).clamp(min=0)
    squared = squared.masked_fill(bad[:, None] | bad | squared.isnan(), torch.inf)
    return squared.fill_diagonal_(0)


def norms(x: Tensor) -> Tensor:
    """||x_i|| [S] of rows [S, d], in float64; infinite for a row that is not finite."""
    lengths: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    return lengths.masked_fill(lengths.isnan(), torch.inf)
