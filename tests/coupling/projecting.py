"""What tests of projections share: one of every kind, and the matrix of a projector."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from descant.coupling import (
    BlockDiagonal,
    Dense,
    Fold,
    Hadamard,
    Hash,
    Identity,
    Orthogonal,
    PerLayer,
    Projection,
    Projector,
    SeedOnly,
    SparseSign,
)
from descant.task import Layout

KINDS: dict[str, Projection] = {
    "dense": Dense(),
    "orthogonal": Orthogonal(),
    "identity": Identity(),
    "block-diagonal": BlockDiagonal(blocks=3),
    "shared block": BlockDiagonal(blocks=3, shared=True),
    "per-layer": PerLayer(),
    "per-layer hash": PerLayer(kind=Hash()),
    "seed-only": SeedOnly(),
    "sparse-sign": SparseSign(nonzeros=2),
    "hash": Hash(),
    "fold": Fold(),
    "hadamard": Hadamard(),
}


def layout(d: int) -> Layout:
    """A model of four layers, the second of which has a weight and a bias."""
    cuts = np.array_split(range(d), 5)
    names = ("a.weight", "b.weight", "b.bias", "c.weight", "d.weight")
    return Layout(names, tuple(torch.Size([len(cut)]) for cut in cuts))


def built(projection: Projection, seed: int, m: int, d: int, dtype: torch.dtype = torch.float64) -> Projector:
    return projection.build(seed, m, torch.empty(0, d, dtype=dtype), layout(d))


def matrix(P: Projector, dtype: torch.dtype = torch.float64) -> Tensor:
    """P [m, d] itself: its rows are the lifts of the unit vectors."""
    return P.lift(torch.eye(P.dim, dtype=dtype))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
