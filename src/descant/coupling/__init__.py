"""What ties a personal model to the reference: projections and penalties."""

from descant.coupling.centers import Center, Stop
from descant.coupling.layers import Layer
from descant.coupling.penalties import Indicator, L1Norm, L2Norm, Penalty, Squared, Zero
from descant.coupling.projections import Dense, Identity, Projection, Projector

PROJECTIONS: dict[str, type[Projection]] = {p.name: p for p in (Dense, Identity)}
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
    "Penalty",
    "Projection",
    "Projector",
    "Squared",
    "Stop",
    "Zero",
]
