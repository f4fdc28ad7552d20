"""Random projections P from the space of models to a subspace that all clients share.

A projection is its seed: every party derives the same P, and P never travels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from descant.draws import normal
from descant.errors import SettingError
from descant.fields import Checked


class Projector(ABC):
    """P [m, d], applied to rows."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """P x: [K, d] -> [K, m]."""

    @abstractmethod
    def lift(self, c: Tensor) -> Tensor:
        """P' c: [K, m] -> [K, d]."""


@dataclass(frozen=True)
class Projection(Checked, ABC):
    """A way to make P, from nothing but a seed, the dimension d of the models and m of the subspace."""

    name: ClassVar[str]

    def dim(self, m: int, d: int) -> int:
        """The dimension of the subspace, where `m` was asked for."""
        return m

    @abstractmethod
    def build(self, seed: int, m: int, x: Tensor) -> Projector:
        """P for models like the rows of x [K, d], in their dtype and on their device."""


@dataclass(frozen=True)
class _Matrix(Projector):
    P: Tensor  # [m, d]

    def project(self, x: Tensor) -> Tensor:
        return x @ self.P.T

    def lift(self, c: Tensor) -> Tensor:
        return c @ self.P


@lru_cache(maxsize=4)
def _gaussian(seed: int, m: int, d: int, dtype: torch.dtype, device: torch.device) -> _Matrix:
    row, column = torch.arange(m, device=device)[:, None], torch.arange(d, device=device)
    P = normal(seed, "projection", row, column)  # float64, so that rounding hides what devices do differently
    return _Matrix((P / torch.linalg.vector_norm(P, dim=1, keepdim=True)).to(dtype))


@dataclass(frozen=True)
class Dense(Projection):
    """Gaussian entries, each row scaled to unit L2 norm (lp-proj, section 3)."""

    name: ClassVar[str] = "dense"

    def build(self, seed: int, m: int, x: Tensor) -> Projector:
        return _gaussian(seed, m, x.shape[-1], x.dtype, x.device)


@lru_cache(maxsize=4)
def _orthonormal(seed: int, m: int, d: int, dtype: torch.dtype, device: torch.device) -> _Matrix:
    # On the CPU in float64, wherever the models are, so that all parties have the same P.
    P = _gaussian(seed, m, d, torch.float64, torch.device("cpu")).P
    Q, R = torch.linalg.qr(P.T)
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0)  # with a positive diagonal it is Gram-Schmidt, and unique
    return _Matrix((Q * signs).T.to(device, dtype).contiguous())


@dataclass(frozen=True)
class Orthogonal(Projection):
    """The rows of `dense` made orthonormal, one after the other (lp-proj, Appendix C.7.4): P P' = I."""

    name: ClassVar[str] = "orthogonal"

    def dim(self, m: int, d: int) -> int:
        if m > d:
            raise SettingError(f"dim = {m}: it must be at most {d}, the number of the model's parameters")
        return m

    def build(self, seed: int, m: int, x: Tensor) -> Projector:
        return _orthonormal(seed, self.dim(m, x.shape[-1]), x.shape[-1], x.dtype, x.device)


class _Same(Projector):
    def project(self, x: Tensor) -> Tensor:
        return x

    def lift(self, c: Tensor) -> Tensor:
        return c


_SAME = _Same()


@dataclass(frozen=True)
class Identity(Projection):
    """P = I: the whole space, whatever dimension was asked for."""

    name: ClassVar[str] = "identity"

    def dim(self, m: int, d: int) -> int:
        return d

    def build(self, seed: int, m: int, x: Tensor) -> Projector:
        return _SAME
