"""Points for the tests of centres, and how good a centre of them is."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from descant.coupling import Penalty, Stop

Array = NDArray[np.float64]
STOP = Stop(1e-12)


def points(seed: int, K: int, d: int) -> tuple[Tensor, Tensor]:
    """Points and weights; every third time the points lie on a grid, where many coincide."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(K, d, generator=g, dtype=torch.float64)
    p = torch.randint(1, 6, (K,), generator=g) if seed % 2 else torch.ones(K)
    return (x.round() if seed % 3 == 0 else x), p


def huber(r: Array, t: float) -> Array:
    return np.where(r <= t, r**2 / (2 * t), r - t / 2) if t > 0 else r


def distances(psi: Penalty, w: Array, x: Array) -> Array:
    """What the norm is a sum of: [K, d] sizes of coordinates, or [K, 1] lengths."""
    c = x - w
    return np.abs(c) if psi.name == "l1" else np.sqrt((c**2).sum(1, keepdims=True))


def value(psi: Penalty, w: Array, x: Array, p: Array, t: float) -> float:
    return float((p @ huber(distances(psi, w, x), t)).sum() / p.sum())


def slope(psi: Penalty, w: Array, x: Array, p: Array, t: float) -> Array:
    """The least subgradient at w. Points at w itself may pull anywhere, with up to their weight, at t = 0."""
    r = np.maximum(distances(psi, w, x), t)
    with np.errstate(invalid="ignore", divide="ignore"):
        pull = np.nan_to_num((w - x) / r)
    g, there = p @ pull / p.sum(), p @ (r == 0) / p.sum()
    size = np.abs(g) if psi.name == "l1" else np.sqrt((g**2).sum(keepdims=True))
    return g * np.maximum(0, 1 - np.divide(there, size, out=np.zeros_like(g), where=size > 0))
