"""Projections whose matrix is stored: dense, orthogonal; and the identity, which needs none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.projections.base import Projection, Projector, Space, at_most
from descant.draws import normal

_AT_ONCE = 2**22  # entries that are drawn at once, in 8 bytes and with several copies


@dataclass(frozen=True)
class Matrix(Projector):
    """P as a matrix."""

    P: Tensor  # [dim, d]

    def project(self, x: Tensor) -> Tensor:
        return x @ self.P.T

    def lift(self, c: Tensor) -> Tensor:
        return c @ self.P


def _gaussian(seed: int, m: int, space: Space) -> Tensor:
    """Gaussian rows [m, d] of unit L2 norm."""
    d, dtype, device = space[:3]
    row, column = torch.arange(m, device=device)[:, None], torch.arange(d, device=device)
    P = torch.empty(m, d, dtype=dtype, device=device)
    for some in torch.split(row, max(1, _AT_ONCE // max(1, d))):
        drawn = normal(seed, "projection", some, column)  # float64: rounding hides what devices do differently
        P[some[:, 0]] = (drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)).to(dtype)
    return P


@dataclass(frozen=True, kw_only=True)
class Dense(Projection):
    """Gaussian entries, each row scaled to unit L2 norm (lp-proj, section 3).

    It stores `dim` d numbers and multiplies as many.
    """

    name: ClassVar[str] = "dense"

    def make(self, seed: int, m: int, space: Space) -> Projector:
        return Matrix(m, space.d, _gaussian(seed, m, space))


@dataclass(frozen=True, kw_only=True)
class Orthogonal(Projection):
    """The rows of `dense` made orthonormal, one after the other (lp-proj, Appendix C.7.4): P P' = I.

    It stores `dim` d numbers and multiplies as many. Making it takes O(`dim`^2 d) in float64.
    """

    name: ClassVar[str] = "orthogonal"

    def dim(self, m: int, d: int) -> int:
        return at_most(m, d)

    def make(self, seed: int, m: int, space: Space) -> Projector:
        # On the CPU in float64, wherever the models are, so that all parties have the same P.
        P = _gaussian(seed, m, Space(space.d, torch.float64, torch.device("cpu")))
        Q, R = torch.linalg.qr(P.T)
        signs = torch.where(R.diagonal() < 0, -1.0, 1.0)  # with a positive diagonal it is Gram-Schmidt, and unique
        return Matrix(m, space.d, (Q * signs).T.to(space.device, space.dtype).contiguous())


@dataclass(frozen=True)
class Same(Projector):
    """P = I."""

    def project(self, x: Tensor) -> Tensor:
        return x

    def lift(self, c: Tensor) -> Tensor:
        return c


@dataclass(frozen=True, kw_only=True)
class Identity(Projection):
    """P = I: the whole space, whatever dimension was asked for."""

    name: ClassVar[str] = "identity"

    def dim(self, m: int, d: int) -> int:
        return d

    def make(self, seed: int, m: int, space: Space) -> Projector:
        return Same(m, space.d)
