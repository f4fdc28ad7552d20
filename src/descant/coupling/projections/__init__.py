"""Random projections P from the space of models to a subspace that all clients share.

A projection is its seed: every party derives the same P, and P never travels.
"""

from descant.coupling.projections.base import Form, Projection, Projector
from descant.coupling.projections.blocks import BlockDiagonal
from descant.coupling.projections.fold import Fold
from descant.coupling.projections.gaussian import SeedOnly
from descant.coupling.projections.hadamard import Hadamard
from descant.coupling.projections.hashed import Hash, SparseSign
from descant.coupling.projections.matrices import Dense, Identity, Orthogonal
from descant.coupling.projections.perlayer import LayerDim, PerLayer

PROJECTIONS: dict[str, type[Projection]] = {
    kind.name: kind
    for kind in (Dense, Orthogonal, BlockDiagonal, PerLayer, SeedOnly, SparseSign, Hash, Fold, Hadamard, Identity)
}

__all__ = [
    "PROJECTIONS",
    "BlockDiagonal",
    "Dense",
    "Fold",
    "Form",
    "Hadamard",
    "Hash",
    "Identity",
    "LayerDim",
    "Orthogonal",
    "PerLayer",
    "Projection",
    "Projector",
    "SeedOnly",
    "SparseSign",
]
