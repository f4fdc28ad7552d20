"""Figures of a federation: how good, how even, and for the worst off."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def across_clients(values: Floats, sizes: NDArray[np.int64], higher_is_better: bool) -> dict[str, float]:
    """One figure per client [N] in a few numbers; clients without examples (size 0) are left out.

    `mean` counts every client the same and `weighted_mean` every example; `variance` (of the population) and
    `std` are the papers' measures of fairness; `worst_10` is the mean of the worst-served tenth of the clients.
    """
    held = sizes > 0
    values, sizes = values[held], sizes[held]
    if not len(values):
        return dict.fromkeys(("mean", "weighted_mean", "variance", "std", "worst_10"), float("nan"))
    worst_first = np.sort(values) if higher_is_better else np.sort(values)[::-1]
    with np.errstate(all="ignore"):  # the losses of a run that diverges may overflow: the figures say so
        return {
            "mean": float(values.mean()),
            "weighted_mean": float(np.average(values, weights=sizes)),
            "variance": float(values.var()),
            "std": float(values.std()),
            "worst_10": float(worst_first[: ceil(len(values) / 10)].mean()),
        }
