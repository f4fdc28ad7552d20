"""Convex penalties psi on the rows of x [K, d]: what a personal model pays for being away from the reference.

A penalty is known by its value and its proximal operator; its Moreau envelope and the centre of points under it
(`centers`) follow from these, and the penalties here have them in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.centers import Center, Stop, accelerated, mean
from descant.coupling.medians import coordinate_median, geometric_median
from descant.errors import SettingError
from descant.fields import Checked


@dataclass(frozen=True)
class Penalty(Checked, ABC):
    """A convex psi >= 0 with psi(0) = 0."""

    name: ClassVar[str]

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """psi(x): [K, d] -> [K]."""

    @abstractmethod
    def prox(self, x: Tensor, t: float) -> Tensor:
        """prox_{t psi}(x), the theta that minimises psi(theta) + ||x - theta||^2 / (2 t); x itself at t = 0."""

    def envelope(self, x: Tensor, t: float) -> Tensor:
        """The Moreau envelope psi_t(x) = min_theta psi(theta) + ||x - theta||^2 / (2 t): [K]; psi at t = 0."""
        if t == 0:
            return self.value(x)
        theta = self.prox(x, t)
        return self.value(theta) + (x - theta).square().sum(-1) / (2 * t)

    def gradient(self, x: Tensor, t: float) -> Tensor:
        """The gradient of the envelope psi_t [K, d], which is smooth for t > 0."""
        return (x - self.prox(x, t)) / t

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        """argmin_w sum_k p_k psi_t(w_k - w) over the rows w_k of x, with weights p [K]."""
        if t == 0:
            raise SettingError(f"a centre under {self!r} needs a delta above 0: it has no solver of its own")
        loses = type(self).gradient is Penalty.gradient
        return accelerated(x, p, lambda c: self.gradient(c, t), t, stop, loses)


@dataclass(frozen=True)
class Squared(Penalty):
    """||x||^2 / 2. The centre is the mean."""

    name: ClassVar[str] = "squared"

    def value(self, x: Tensor) -> Tensor:
        return x.square().sum(-1) / 2

    def prox(self, x: Tensor, t: float) -> Tensor:
        return x / (1 + t)

    def envelope(self, x: Tensor, t: float) -> Tensor:
        return self.value(x) / (1 + t)

    def gradient(self, x: Tensor, t: float) -> Tensor:
        return x / (1 + t)

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        return mean(x, p)


@dataclass(frozen=True)
class L2Norm(Penalty):
    """||x||_2. The centre is the geometric median, smoothed by t."""

    name: ClassVar[str] = "l2"

    def value(self, x: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
        return norm

    def prox(self, x: Tensor, t: float) -> Tensor:
        return x * (1 - t / self._reach(x, t))

    def envelope(self, x: Tensor, t: float) -> Tensor:
        norm = self.value(x)
        return torch.where(norm <= t, norm.square() / (2 * t), norm - t / 2) if t > 0 else norm

    def gradient(self, x: Tensor, t: float) -> Tensor:
        """x / max(||x||, t); at t = 0 the least subgradient."""
        return x / self._reach(x, t)

    def _reach(self, x: Tensor, t: float) -> Tensor:
        return self.value(x).unsqueeze(-1).clamp(min=max(t, torch.finfo(x.dtype).tiny))

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        return geometric_median(x, p, t, stop)


@dataclass(frozen=True)
class L1Norm(Penalty):
    """||x||_1. The centre is the coordinate-wise median, smoothed by t."""

    name: ClassVar[str] = "l1"

    def value(self, x: Tensor) -> Tensor:
        return x.abs().sum(-1)

    def prox(self, x: Tensor, t: float) -> Tensor:
        return x - x.clamp(-t, t)  # the soft threshold, on both sides

    def envelope(self, x: Tensor, t: float) -> Tensor:
        size = x.abs()
        return (torch.where(size <= t, size.square() / (2 * t), size - t / 2) if t > 0 else size).sum(-1)

    def gradient(self, x: Tensor, t: float) -> Tensor:
        """x / t between -1 and 1; at t = 0 the least subgradient."""
        return (x / t).clamp(-1, 1) if t > 0 else x.sign()

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        return coordinate_median(x, p, t, stop)


@dataclass(frozen=True)
class Zero(Penalty):
    """Nothing: every point is a centre, and the mean is taken."""

    name: ClassVar[str] = "zero"

    def value(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., 0])

    def prox(self, x: Tensor, t: float) -> Tensor:
        return x

    def envelope(self, x: Tensor, t: float) -> Tensor:
        return self.value(x)

    def gradient(self, x: Tensor, t: float) -> Tensor:
        return torch.zeros_like(x)

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        return mean(x, p)


@dataclass(frozen=True)
class Indicator(Penalty):
    """0 at the reference itself and infinity elsewhere. The centre is the mean, also in the limit t = 0."""

    name: ClassVar[str] = "indicator"

    def value(self, x: Tensor) -> Tensor:
        return torch.where((x == 0).all(-1), 0.0, torch.inf).to(x)

    def prox(self, x: Tensor, t: float) -> Tensor:
        return torch.zeros_like(x)

    def center(self, x: Tensor, p: Tensor, t: float, stop: Stop) -> Center:
        return mean(x, p)
