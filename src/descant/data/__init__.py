"""Who holds which examples: FederatedData, the ways to make it, and ready-made data sets."""

from collections.abc import Callable

from descant.data.digits import digits
from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.data.federated import FederatedData
from descant.data.huggingface import from_huggingface
from descant.data.part import Part
from descant.data.partitions import PARTITIONS, Partition, partitioned
from descant.data.sets import SETS
from descant.data.synthetic import fedplus_synthetic, synthetic

# By the name that settings and the command line use; a docstring's first line is what `list` shows.
DATASETS: dict[str, Callable[..., FederatedData]] = {
    "synthetic": synthetic,
    "fedplus-synthetic": fedplus_synthetic,
    "digits": digits,
    "folder": FederatedData.from_folder,
    "mapped": FederatedData.from_mapped,
    **SETS,
}

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "DataError",
    "Examples",
    "FederatedData",
    "Part",
    "Partition",
    "digits",
    "fedplus_synthetic",
    "from_huggingface",
    "partitioned",
    "synthetic",
]
