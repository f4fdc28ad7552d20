"""What ties a personal model to the reference: projections and penalties."""

from descant.coupling.centers import Center, Stop
from descant.coupling.layers import Layer
from descant.coupling.penalties import Indicator, L1Norm, L2Norm, Penalty, Squared, Zero
from descant.coupling.projections import Dense, Identity, Orthogonal, Projection, Projector

PROJECTIONS: dict[str, type[Projection]] = {p.name: p for p in (Dense, Orthogonal, Identity)}
PENALTIES: dict[str, type[Penalty]] = {p.name: p for p in (Squared, L2Norm, L1Norm, Zero, Indicator)}

__all__ = [
    "PENALTIES",
    "PROJECTIONS",
    "Center",
    "Dense",
    "Identity",
    "Indicator",
    "L1Norm",
    "L2Norm",
    "Layer",
    "Orthogonal",
    "Penalty",
    "Projection",
    "Projector",
    "Squared",
    "Stop",
    "Zero",
]
