"""What aggregators that choose among messages share."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def primary(leaves: Mapping[str, Tensor]) -> Tensor:
    """The first leaf [S, ...] as rows [S, d]: what is selected by."""
    leaf = next(iter(leaves.values()))
    return leaf.reshape(len(leaf), -1)


def mean_of(leaves: Mapping[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
    """The plain mean of the chosen messages [m] of all leaves."""
    return {name: leaf[chosen].mean(0) for name, leaf in leaves.items()}
