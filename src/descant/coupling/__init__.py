"""What ties a personal model to the reference: projections and penalties."""

from descant.coupling.centers import Center, Stop
from descant.coupling.layers import Layer
from descant.coupling.penalties import Indicator, L1Norm, L2Norm, Penalty, Squared, Zero
from descant.coupling.projections import (
    PROJECTIONS,
    BlockDiagonal,
    Dense,
    Fold,
    Form,
    Hadamard,
    Hash,
    Identity,
    LayerDim,
    Orthogonal,
    PerLayer,
    Projection,
    Projector,
    SeedOnly,
    SparseSign,
)

PENALTIES: dict[str, type[Penalty]] = {p.name: p for p in (Squared, L2Norm, L1Norm, Zero, Indicator)}

__all__ = [
    "PENALTIES",
    "PROJECTIONS",
    "BlockDiagonal",
    "Center",
    "Dense",
    "Fold",
    "Form",
    "Hadamard",
    "Hash",
    "Identity",
    "Indicator",
    "L1Norm",
    "L2Norm",
    "Layer",
    "LayerDim",
    "Orthogonal",
    "Penalty",
    "PerLayer",
    "Projection",
    "Projector",
    "SeedOnly",
    "SparseSign",
    "Squared",
    "Stop",
    "Zero",
]
