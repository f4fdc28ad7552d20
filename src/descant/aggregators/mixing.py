"""Mixing messages with each other before they are combined, which makes honest ones more alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.aggregators.assumed import Assuming
from descant.aggregators.before import Before, mixed, rows_of, times
from descant.aggregators.selecting import primary
from descant.context import Context
from descant.coupling.distances import finite_rows, squared_distances
from descant.errors import require
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(Assuming, Before):
    """Nearest-neighbor mixing (Allouah et al., 2023): each message becomes the mean of the S - f nearest to it.

    Itself is among them; near is by the first leaf. What follows must survive f attackers of S.
    """

    name: ClassVar[str] = "nnm"
    weighs: ClassVar[bool] = False

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        x = primary(mail.leaves)
        near = squared_distances(x).argsort(dim=1, stable=True)[:, : len(x) - self.attackers(len(x))]
        weights = torch.zeros(len(x), len(x), dtype=torch.float64, device=x.device).scatter_(1, near, 1.0)
        weights /= near.shape[1]
        return mixed(mail, lambda leaf: times(weights, leaf), torch.arange(len(x), device=x.device))


@dataclass(frozen=True, kw_only=True)
class Bucketing(Before):
    """Bucketing (Karimireddy et al., 2022), Algorithm 1: of each `size` messages, at random, only the mean is kept.

    f attackers of S messages spoil at most f of the S / size means: what follows must survive so many.
    """

    name: ClassVar[str] = "bucketing"
    weighs: ClassVar[bool] = False

    size: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "size", self.size >= 1, "a positive number")

    def left(self, messages: int) -> int:
        return -(-messages // self.size)  # the last bucket may have fewer

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        S = len(next(iter(mail.values())))
        order = ctx.uniform(self.name, (S,)).argsort()
        bucket = torch.empty_like(order).index_copy_(0, order, torch.arange(S, device=order.device) // self.size)
        return mixed(mail, lambda leaf: means(leaf, bucket), order[:: self.size])


def means(leaf: Tensor, bucket: Tensor) -> Tensor:
    """The mean of the rows of a leaf [S, ...] in each bucket [S]; NaN where one of them is not finite."""
    rows, counts = rows_of(leaf), bucket.bincount()
    sums = torch.zeros(len(counts), rows.shape[1], dtype=rows.dtype, device=rows.device)
    sums.index_add_(0, bucket, rows)
    sums /= counts.to(sums.dtype)[:, None]
    sums[bucket[~finite_rows(rows)]] = torch.nan
    return sums.view(len(counts), *leaf.shape[1:])
