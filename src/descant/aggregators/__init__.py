"""How the server combines the messages of a round."""

from descant.aggregators.base import Aggregator, RecordFigure, unheard
from descant.aggregators.before import Before, Chain
from descant.aggregators.clipping import CenteredClipping
from descant.aggregators.kloss import KLoss
from descant.aggregators.krum import Bulyan, Krum, MultiKrum
from descant.aggregators.mean import Mean
from descant.aggregators.medians import CoordinateMedian, GeometricMedian
from descant.aggregators.mixing import Bucketing, NearestNeighborMixing
from descant.aggregators.norms import AdaptiveClipping, KNorm, NormClipping
from descant.aggregators.trimmed import TrimmedMean

AGGREGATORS: dict[str, type[Aggregator]] = {
    a.name: a
    for a in (
        Mean,
        CoordinateMedian,
        GeometricMedian,
        TrimmedMean,
        Krum,
        MultiKrum,
        Bulyan,
        NormClipping,
        CenteredClipping,
        AdaptiveClipping,
        KNorm,
        KLoss,
        NearestNeighborMixing,
        Bucketing,
    )
}

__all__ = [
    "AGGREGATORS",
    "AdaptiveClipping",
    "Aggregator",
    "Before",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "Chain",
    "CoordinateMedian",
    "GeometricMedian",
    "KLoss",
    "KNorm",
    "Krum",
    "Mean",
    "MultiKrum",
    "NearestNeighborMixing",
    "NormClipping",
    "RecordFigure",
    "TrimmedMean",
    "unheard",
]
