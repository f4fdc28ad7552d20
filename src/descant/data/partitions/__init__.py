"""Who holds which examples of a data set: one file a kind of skew."""

from descant.data.partitions.apply import Examples, partitioned
from descant.data.partitions.base import Partition
from descant.data.partitions.dirichlet import Dirichlet, Quantity
from descant.data.partitions.hybrid import Hybrid
from descant.data.partitions.iid import IID
from descant.data.partitions.labels import Labels
from descant.data.partitions.natural import Natural
from descant.data.partitions.powerlaw import PowerLaw
from descant.data.partitions.quality import Quality

PARTITIONS: dict[str, type[Partition]] = {
    p.name: p for p in (IID, Labels, Dirichlet, Quantity, PowerLaw, Quality, Hybrid, Natural)
}

__all__ = [
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "Examples",
    "Hybrid",
    "Labels",
    "Natural",
    "Partition",
    "PowerLaw",
    "Quality",
    "Quantity",
    "partitioned",
]
