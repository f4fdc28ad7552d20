"""Who holds which examples: FederatedData, the ways to make it, and ready-made data sets."""

from collections.abc import Callable

from descant.data.digits import digits
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.part import Part
from descant.data.partitions import PARTITIONS, Partition, partitioned
from descant.data.synthetic import fedplus_synthetic, synthetic

# By the name that settings and the command line use; a docstring's first line is what `list` shows.
DATASETS: dict[str, Callable[..., FederatedData]] = {
    "synthetic": synthetic,
    "fedplus-synthetic": fedplus_synthetic,
    "digits": digits,
    "folder": FederatedData.from_folder,
    "mapped": FederatedData.from_mapped,
}

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataError",
    "FederatedData",
    "Part",
    "Partition",
    "digits",
    "fedplus_synthetic",
    "partitioned",
    "synthetic",
]
