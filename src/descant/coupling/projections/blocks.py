"""A block-diagonal P: every block of the parameters has a small matrix of its own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.projections.base import Projection, Projector, Space, at_most, evenly
from descant.coupling.projections.gaussian import entries, unit_rows
from descant.coupling.projections.sums import DirectSum
from descant.errors import SettingError, require

_AT_ONCE = 2**20  # entries that are drawn at once


def _cut(rows: Tensor, blocks: int) -> Tensor:
    """Rows [K, n] in blocks [K, blocks, n / blocks]."""
    return rows.reshape(len(rows), blocks, rows.shape[1] // blocks)


@dataclass(frozen=True)
class Blocks(Projector):
    """Blocks of one size, each with a matrix of its own, along the diagonal."""

    P: Tensor  # [blocks, dim / blocks, d / blocks]

    def project(self, x: Tensor) -> Tensor:
        return torch.einsum("kbd,bmd->kbm", _cut(x, len(self.P)), self.P).flatten(1)

    def lift(self, c: Tensor) -> Tensor:
        return torch.einsum("kbm,bmd->kbd", _cut(c, len(self.P)), self.P).flatten(1)


@dataclass(frozen=True)
class Repeated(Projector):
    """One block again and again along the diagonal."""

    blocks: int
    G: Tensor  # [dim / blocks, d / blocks]
    scale: Tensor  # [dim / blocks] over the norms of G's rows

    def project(self, x: Tensor) -> Tensor:
        c: Tensor = _cut(x, self.blocks) @ self.G.T * self.scale
        return c.flatten(1)

    def lift(self, c: Tensor) -> Tensor:
        x: Tensor = _cut(c, self.blocks) * self.scale @ self.G
        return x.flatten(1)


@dataclass(frozen=True, kw_only=True)
class BlockDiagonal(Projection):
    """Gaussian blocks along the diagonal, rows of unit L2 norm, zeros elsewhere (lp-proj 2024, section 6.1).

    `blocks` is their number k. It stores `dim` d / k numbers and multiplies as many. With `shared` all blocks are
    the same one, and `dim` d / k^2 numbers are stored. Where k does not divide `dim` or d, the first blocks are
    larger by one; a shared block then leaves out its last row or column, and its rows are scaled anew.
    """

    name: ClassVar[str] = "block-diagonal"

    blocks: int = 10
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "blocks", self.blocks >= 1, "a positive number")

    def dim(self, m: int, d: int) -> int:
        if 0 < at_most(m, d) < self.blocks:
            why = f"it must be at most {m}, the dim of the subspace, so that every block has a row"
            raise SettingError(f"method.projection.blocks = {self.blocks}: {why}")
        return m

    def make(self, seed: int, m: int, space: Space) -> Projector:
        key, parts, spans, row, column = space.key(seed, self.name), list[Projector](), [], 0, 0
        sizes = list(zip(evenly(m, self.blocks), evenly(space.d, self.blocks), strict=True))
        one = _one(key, *sizes[0], space) if self.shared else None
        for (rows, columns), alike in groupby(sizes):  # at most three runs of blocks that are alike
            blocks = len(list(alike))
            dims = blocks * rows, blocks * columns
            if one is None:
                parts.append(Blocks(*dims, _own(key, row, blocks, rows, columns, space)))
            else:
                G = one[:rows, :columns]
                scale = 1 / torch.linalg.vector_norm(G, dim=1, dtype=torch.float64)
                parts.append(Repeated(*dims, blocks, G, scale.to(space.dtype)))
            spans.append(((column, column + dims[1]),))
            row, column = row + dims[0], column + dims[1]
        return DirectSum(m, space.d, tuple(parts), tuple(spans))


def _one(key: Tensor, rows: int, columns: int, space: Space) -> Tensor:
    return entries(key, torch.arange(rows, device=space.device), 0, columns, columns).to(space.dtype)


def _own(key: Tensor, first: int, blocks: int, rows: int, columns: int, space: Space) -> Tensor:
    """Blocks of rows of unit norm; the rows of all blocks are numbered through, from `first` on."""
    P = torch.empty(blocks * rows, columns, dtype=space.dtype, device=space.device)
    number = torch.arange(blocks * rows, device=space.device)
    for some in torch.split(number, max(1, _AT_ONCE // max(1, columns))):
        P[some] = unit_rows(key, first + some, columns).to(space.dtype)
    return P.view(blocks, rows, columns)
