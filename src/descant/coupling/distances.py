"""Distances between messages, right to the last digits where they are close and beside attackers that are far."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.coupling.columns import columns, lower_median, squared_norms

_ROWS = 128  # whose products with the others are taken at once
_BLOCK = 2**21  # numbers that are multiplied in one go


def squared_distances(x: Tensor) -> Tensor:
    """||x_i - x_j||^2 [S, S] of rows [S, d], in float64.

    They come from products of matrices: ||x_i||^2 + ||x_j||^2 - 2 <x_i, x_j>. Taken as they are, these numbers lose
    all their digits where models are close to each other and far from zero. So rows are first moved by their
    coordinate-wise median, which a minority of attackers does not move far, and all sums are in float64. A row that
    is not finite, and whatever overflows, is infinitely far from all others.
    """
    gram, bad = centred_products(x)
    norms = gram.diagonal()
    squared = (norms[:, None] + norms - 2 * gram).clamp(min=0)
    squared = squared.masked_fill(bad[:, None] | bad | squared.isnan(), torch.inf)
    return squared.fill_diagonal_(0)


def centred_products(x: Tensor) -> tuple[Tensor, Tensor]:
    """<x_i - c, x_j - c> [S, S] in float64, c the coordinate-wise median, and which rows [S] are not finite.

    Those count as c itself.
    """
    S = len(x)
    gram = torch.zeros(S, S, dtype=torch.float64, device=x.device)
    bad = ~finite_rows(x)
    for _, block in columns(x, _BLOCK):
        block = block.masked_fill(bad[:, None], 0) if bool(bad.any()) else block
        near = (block - lower_median(block).double()).masked_fill_(bad[:, None], 0)
        for i in range(0, S, _ROWS):  # the upper half: the lower one is its mirror
            gram[i : i + _ROWS, i:].addmm_(near[i : i + _ROWS], near[i:].T)
    return gram.triu() + gram.triu(1).T, bad  # products are the same both ways, to the last bit: ties stay ties


def finite_rows(x: Tensor) -> Tensor:
    """Which rows [S] of x [S, d] hold finite numbers only."""
    if not x.shape[1]:
        return torch.ones(len(x), dtype=torch.bool, device=x.device)
    return x.amax(1).isfinite() & x.amin(1).isfinite()  # both are NaN where any number is


def norms(x: Tensor, center: Tensor | None = None) -> Tensor:
    """||x_i - center|| [S] of rows [S, d], in float64; infinite for a row that is not finite."""
    return squared_norms(x, center).sqrt_().nan_to_num_(nan=torch.inf, posinf=torch.inf)
