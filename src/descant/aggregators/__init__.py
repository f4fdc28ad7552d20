"""How the server combines the messages of a round."""

from descant.aggregators.base import Aggregator, Record, unheard
from descant.aggregators.clipping import CenteredClipping
from descant.aggregators.kloss import KLoss
from descant.aggregators.mean import Mean
from descant.aggregators.medians import CoordinateMedian, GeometricMedian

AGGREGATORS: dict[str, type[Aggregator]] = {
    a.name: a for a in (Mean, CoordinateMedian, GeometricMedian, CenteredClipping, KLoss)
}

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "CenteredClipping",
    "CoordinateMedian",
    "GeometricMedian",
    "KLoss",
    "Mean",
    "Record",
    "unheard",
]
