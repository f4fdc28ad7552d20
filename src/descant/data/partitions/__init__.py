"""Who holds which examples of a data set: one file a kind of skew."""

from descant.data.partitions.apply import Unassigned, partitioned
from descant.data.partitions.base import Partition
from descant.data.partitions.dirichlet import Dirichlet, Quantity
from descant.data.partitions.hybrid import Hybrid
from descant.data.partitions.iid import IID
from descant.data.partitions.labels import Labels
from descant.data.partitions.natural import Natural
from descant.data.partitions.powerlaw import PowerLawSizes
from descant.data.partitions.quality import Quality

PARTITIONS: dict[str, type[Partition]] = {
    p.name: p for p in (IID, Labels, Dirichlet, Quantity, PowerLawSizes, Quality, Hybrid, Natural)
}

__all__ = [
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "Hybrid",
    "Labels",
    "Natural",
    "Partition",
    "PowerLawSizes",
    "Quality",
    "Quantity",
    "Unassigned",
    "partitioned",
]
