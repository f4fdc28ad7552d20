"""Losses of a score in their dual form, for methods that go up the dual one example after the other.

For a loss l(s) of a score s, a dual a stands for -l'(s). The dual objective has -l*(-a), with the conjugate
l*(u) = max_s u s - l(s). By Fenchel and Young l(s) + l*(-a) + a s >= 0, and it is 0 just where a = -l'(s).
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

_NEWTON = 25  # steps: a few more than log q, and double precision is reached for q up to a million


class Dual(Protocol):
    """A loss; all tensors are of one shape, or can be spread to it. y is -1 or 1, or a number for "squared"."""

    name: ClassVar[str]

    def gap(self, a: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """l(s) + l*(-a) + a s, which is how far the dual a is from the score s."""
        ...

    def ascend(self, a: Tensor, y: Tensor, s: Tensor, q: Tensor) -> Tensor:
        """The b that maximises -l*(-b) - s (b - a) - q/2 (b - a)^2."""
        ...


class Hinge:
    """l(s) = max(0, 1 - y s), with y a in [0, 1]."""

    name: ClassVar[str] = "hinge"

    def gap(self, a: Tensor, y: Tensor, s: Tensor) -> Tensor:
        return functional.relu(1 - y * s) - y * a * (1 - y * s)

    def ascend(self, a: Tensor, y: Tensor, s: Tensor, q: Tensor) -> Tensor:
        return y * (y * a + (1 - y * s) / q).clamp(0, 1)  # at q = 0 the score is 0, and this is 1


class Logistic:
    """l(s) = log(1 + exp(-y s)), with p = y a in [0, 1]: the probability that the model gives the other label."""

    name: ClassVar[str] = "logistic"

    def gap(self, a: Tensor, y: Tensor, s: Tensor) -> Tensor:
        p = y * a
        return functional.softplus(-y * s) + torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p) + p * y * s

    def ascend(self, a: Tensor, y: Tensor, s: Tensor, q: Tensor) -> Tensor:
        """p = 1 / (1 + exp(-z)), with h(z) = z + y s + q (p - y a) = 0, by Newton's method.

        h rises; it is convex where z < 0 and concave where z > 0. So steps from the point of the root's bracket
        that is nearest to 0 go to the root, never past it.
        """
        low, high = -y * s - q * (1 - y * a), -y * s + q * y * a
        z = torch.minimum(torch.maximum(torch.zeros_like(low), low), high)
        for _ in range(_NEWTON):
            p = z.sigmoid()
            z = z - (z + y * s + q * (p - y * a)) / (1 + q * p * (1 - p))
        return y * z.sigmoid()


class Squared:
    """l(s) = (s - y)^2, with any a."""

    name: ClassVar[str] = "squared"

    def gap(self, a: Tensor, y: Tensor, s: Tensor) -> Tensor:
        return (s - y + a / 2).square()

    def ascend(self, a: Tensor, y: Tensor, s: Tensor, q: Tensor) -> Tensor:
        return a + (y - s - a / 2) / (q + 0.5)


DUALS: dict[str, Dual] = {dual.name: dual for dual in (Hinge(), Logistic(), Squared())}
