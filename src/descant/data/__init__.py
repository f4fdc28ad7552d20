"""Who holds which examples: FederatedData, and the ways to make it. Data sets by name are in `descant.datasets`."""

from typing import Any

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.data.federated import FederatedData
from descant.data.huggingface import from_huggingface
from descant.data.part import Part
from descant.data.partitions import PARTITIONS, Partition, partitioned

# Names of descant.datasets, which imports this package.
_BY_NAME = ("DATASETS", "digits", "fedplus_synthetic", "synthetic")

__all__ = [
    "PARTITIONS",
    "DataError",
    "Examples",
    "FederatedData",
    "Part",
    "Partition",
    "from_huggingface",
    "partitioned",
    *_BY_NAME,
]


def __getattr__(name: str) -> Any:
    if name in _BY_NAME:
        from descant import datasets

        return getattr(datasets, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
