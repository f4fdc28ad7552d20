"""Matrices [K, d] of many numbers, looked at in blocks of columns, so that no second one as large is ever made."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

BLOCK = 2**16  # numbers that are looked at in one go: few enough for a core's own cache, also in float64


def columns(x: Tensor, numbers: int | None = None) -> Iterator[tuple[slice, Tensor]]:
    """The columns of x [K, d] in blocks: where they stand, and what they are."""
    width = max(1, (numbers or BLOCK) // max(1, len(x)))
    for begin in range(0, x.shape[1], width):
        at = slice(begin, begin + width)
        yield at, x[:, at]


def by_columns(x: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """of(x), where it takes columns [K, d] to numbers [..., d] and every column is a problem of its own."""
    return torch.cat([of(block) for _, block in columns(x)], -1) if x.shape[1] else of(x)


def ordered(x: Tensor) -> Tensor:
    """The values of every column of x [K, d] in ascending order, what is no number last: torch's `sort(0)`.

    On a CPU it is NumPy that sorts, along rows that lie together: several times as fast.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return x.sort(0).values
    turned = x.detach().T.clone(memory_format=torch.contiguous_format)
    turned.numpy().sort(axis=1)
    return turned.T


def lower_median(x: Tensor) -> Tensor:
    """The median of every column of x [K, d], of two the lower one: torch's `median(0)`, where all are finite."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return x.median(0).values
    turned, middle = x.detach().T.clone(memory_format=torch.contiguous_format), (len(x) - 1) // 2
    turned.numpy().partition(middle, axis=1)
    return turned[:, middle].clone()


def mixture(x: Tensor, weights: Tensor, away: Tensor | None = None) -> Tensor:
    """sum_k weights_k (x_k - away) [d] of rows x [K, d], in float64."""
    found = weights.new_empty(x.shape[1])  # at once: small pieces among freed blocks would scatter memory
    for at, block in columns(x):
        found[at] = weights @ (block.double() if away is None else _less(block, away[at]))
    return found


def squared_norms(x: Tensor, center: Tensor | None = None) -> Tensor:
    """||x_k - center||^2 [K] of rows x [K, d], in float64."""
    squares = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for at, block in columns(x):
        off = block.to(torch.float64, copy=True) if center is None else _less(block, center[at])
        squares += off.square_() @ torch.ones_like(off[0])  # a product: sums along rows are slower
    return squares


def _less(block: Tensor, center: Tensor) -> Tensor:
    """block - center in float64, as a matrix of its own."""
    return block.to(torch.float64, copy=True).sub_(center)
