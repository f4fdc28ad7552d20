"""A hash that takes no indices: the model in pieces as long as the subspace, signed at random and added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from descant.coupling.projections.base import Projection, Projector, Space, at_most
from descant.coupling.projections.matrices import Matrix
from descant.rotation import signs

_FEW = 16  # pieces


def _cut(x: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The whole pieces [K, pieces, m] of x [K, d], and what is left; both are views."""
    pieces = x.shape[1] // m
    return x[:, : pieces * m].view(len(x), pieces, m), x[:, pieces * m :]


# Opaque to torch.compile, which would divide every index by m: two products, written in place, are faster.
@torch.library.custom_op("descant::fold_onto", mutates_args=())
def _onto(w: Tensor | None, c: Tensor, sign: Tensor) -> Tensor:
    x = c.new_empty(len(c), len(sign))
    (whole, rest), (signs, last) = _cut(x, c.shape[1]), _cut(sign[None], c.shape[1])
    pieces, over = c[:, None], c[:, : rest.shape[1]]
    if w is None:
        torch.mul(pieces, signs, out=whole)
        torch.mul(over, last, out=rest)
    else:
        begin, end = _cut(w, c.shape[1])
        torch.addcmul(begin, pieces, signs, out=whole)
        torch.addcmul(end, over, last, out=rest)
    return x


@_onto.register_fake
def _(w: Tensor | None, c: Tensor, sign: Tensor) -> Tensor:
    return c.new_empty(len(c), len(sign))


@dataclass(frozen=True)
class Folded(Projector):
    """Coordinate i goes to bucket i mod dim, times its sign, over the square root of the bucket's size."""

    sign: Tensor  # [d]
    scale: Tensor  # [dim] over the square roots of the buckets' sizes

    def project(self, x: Tensor) -> Tensor:
        (whole, rest), (signs, last) = _cut(x, self.dim), _cut(self.sign[None], self.dim)
        over = functional.pad(rest * last, (0, self.dim - rest.shape[1]))
        return ((whole * signs).sum(1) + over) * self.scale

    def lift(self, c: Tensor) -> Tensor:
        x: Tensor = _onto(None, c * self.scale, self.sign)
        return x

    def onto(self, w: Tensor, c: Tensor) -> Tensor:
        c = c * self.scale
        # A compiled program of the CPU has a loop for each piece, faster than a call if they are few.
        if torch.compiler.is_compiling() and w.device.type == "cpu" and self.d <= _FEW * self.dim:
            pieces = zip(torch.split(w, self.dim, 1), torch.split(self.sign[None], self.dim, 1), strict=True)
            return torch.cat([piece + c[:, : piece.shape[1]] * signs for piece, signs in pieces], 1)
        x: Tensor = _onto(w, c, self.sign)
        return x


@dataclass(frozen=True, kw_only=True)
class Fold(Projection):
    """The model in pieces of `dim` numbers, signed at random and added up, over the square root of their number.

    It is a hash whose signs alone are drawn: parameter i is in bucket i mod `dim`, and no bucket is empty. Rows are
    orthonormal: P P' = I. It takes O(d) in the order of memory, with no index, and stores d numbers.
    """

    name: ClassVar[str] = "fold"

    def dim(self, m: int, d: int) -> int:
        return at_most(m, d)

    def make(self, seed: int, m: int, space: Space) -> Projector:
        d, device = space.d, space.device
        if not m:
            return Matrix(0, d, torch.zeros(0, d, dtype=space.dtype, device=device))
        sign = signs(space.key(seed, self.name), 0, d).to(space.dtype)
        sizes = d // m + (torch.arange(m, device=device) < d % m).double()
        return Folded(m, d, sign, sizes.rsqrt().to(space.dtype))
