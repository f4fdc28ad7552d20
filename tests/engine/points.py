"""The federation of points in the plane, by hand: what three steps of a client come to, and who takes part."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.engine.cohort import sample
from descant.methods import FedAvg

N, LR, SEED = 4, 0.1, 5
PLAIN = FedAvg(lr=LR, steps=3, batch=None, weighted=False)


def pulled(w: Tensor, mean: Tensor) -> Tensor:
    """The update of a client after three steps."""
    return mean + (1 - LR) ** 3 * (w - mean) - w


def cohort_of(t: int, size: int) -> list[int]:
    """Who takes part in round t."""
    drawn: list[int] = sample(SEED, t, size, torch.ones(N)).tolist()
    return drawn


def close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape and float((a - b).abs().max()) <= 1e-12
