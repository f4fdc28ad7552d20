"""Gaussian entries of P that are generated when needed, and never stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.projections.base import Projection, Projector, Space
from descant.draws import stream

_ROWS, _COLUMNS = 64, 4096  # of P that are generated at once


@lru_cache(maxsize=4)
def _quantiles(device: torch.device) -> Tensor:
    """65,536 normal quantiles of equal probability, in float32, scaled to variance one."""
    z: Tensor = torch.special.ndtri((torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16)
    z /= z.square().mean().sqrt()
    return z.float().to(device)


def entries(key: Tensor, rows: Tensor, begin: int, end: int, d: int) -> Tensor:
    """Draws from N(0, 1): rows of a matrix with d columns, from a column `begin`, a multiple of 4, to `end`.

    64 random bits make four of them, as quantiles by 16 bits each. A look into a table is exact, so they are the
    same on every device and in every dtype.
    """
    words = torch.arange(begin // 4, -(-end // 4), device=rows.device)
    word = stream(key, rows[:, None] * -(-d // 4) + words)
    number = word.view(torch.int16).long()[:, : end - begin]  # a negative one counts from the table's end
    return _quantiles(rows.device)[number]


def unit_rows(key: Tensor, rows: Tensor, d: int) -> Tensor:
    """Gaussian rows [rows, d] of unit L2 norm, in float64."""
    drawn = entries(key, rows, 0, d, d).double()
    drawn /= torch.linalg.vector_norm(drawn, dim=1, keepdim=True)
    return drawn


def _pieces(key: Tensor, m: int, d: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """The matrix [m, d], piece by piece."""
    rows = torch.arange(m, device=key.device)
    for column in range(0, d, _COLUMNS):
        end = min(column + _COLUMNS, d)
        for row in range(0, m, _ROWS):
            across = slice(row, min(row + _ROWS, m))
            yield across, slice(column, end), entries(key, rows[across], column, end, d)


# Opaque to torch.compile, which would unroll the loop over pieces.
@torch.library.custom_op("descant::gaussian_project", mutates_args=())
def _project(x: Tensor, key: Tensor, m: int) -> Tensor:
    c = x.new_zeros(len(x), m)
    for rows, columns, P in _pieces(key, m, x.shape[1]):
        c[:, rows] += x[:, columns] @ P.to(x.dtype).T
    return c


@_project.register_fake
def _(x: Tensor, key: Tensor, m: int) -> Tensor:
    return x.new_empty(len(x), m)


@torch.library.custom_op("descant::gaussian_lift", mutates_args=())
def _lift(c: Tensor, key: Tensor, d: int) -> Tensor:
    x = c.new_zeros(len(c), d)
    for rows, columns, P in _pieces(key, c.shape[1], d):
        x[:, columns] += c[:, rows] @ P.to(c.dtype)
    return x


@_lift.register_fake
def _(c: Tensor, key: Tensor, d: int) -> Tensor:
    return c.new_empty(len(c), d)


@dataclass(frozen=True)
class Generated(Projector):
    """P with entries scale_i G_ij, and G of `entries`."""

    key: Tensor  # []
    scale: Tensor  # [dim] over the norms of G's rows

    def project(self, x: Tensor) -> Tensor:
        c: Tensor = _project(x, self.key, self.dim)
        return c * self.scale

    def lift(self, c: Tensor) -> Tensor:
        x: Tensor = _lift(c * self.scale, self.key, self.d)
        return x


@dataclass(frozen=True, kw_only=True)
class SeedOnly(Projection):
    """Gaussian entries, each row scaled to unit L2 norm, which are generated when needed and never stored.

    It stores `dim` numbers. Each use generates `dim` d entries, piece by piece: it is for models whose `dense`
    matrix fits nowhere, and for few uses. The entries are other ones than those of `dense`.
    """

    name: ClassVar[str] = "seed-only"

    def make(self, seed: int, m: int, space: Space) -> Projector:
        key = space.key(seed, self.name)
        squares = torch.zeros(m, dtype=torch.float64, device=space.device)
        for rows, _, P in _pieces(key, m, space.d):
            squares[rows] += P.double().square().sum(1)
        return Generated(m, space.d, key, squares.rsqrt().to(space.dtype))
