"""Data sets by name: generated ones, and readers of the standard files of the others."""

from collections.abc import Callable

from descant.data import FederatedData
from descant.datasets.digits import digits
from descant.datasets.sets import SETS
from descant.datasets.synthetic import fedplus_synthetic, synthetic

# By the name that settings and the command line use; a docstring's first line is what `list` shows.
DATASETS: dict[str, Callable[..., FederatedData]] = {
    "synthetic": synthetic,
    "fedplus-synthetic": fedplus_synthetic,
    "digits": digits,
    "folder": FederatedData.from_folder,
    "mapped": FederatedData.from_mapped,
    **SETS,
}

__all__ = ["DATASETS", "digits", "fedplus_synthetic", "synthetic"]
