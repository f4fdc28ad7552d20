"""Figures of a federation: how good, how even, and for the worst off."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STATISTICS = ("mean", "weighted_mean", "variance", "std", "worst_10", "best_10")


def across_clients(
    values: Floats, sizes: NDArray[np.int64], higher_is_better: bool, *, undefined: bool = False
) -> dict[str, Floats]:
    """One figure per client [..., N] in a few numbers [...]; clients without examples (size 0) are left out.

    So are clients whose figure is NaN, where that says that it is `undefined` for them. Elsewhere NaN is a result,
    and comes out.

    `mean` counts every client the same and `weighted_mean` every example; `variance` (of the population) and
    `std` are the papers' measures of fairness; `worst_10` and `best_10` are the means of the worst-served and of
    the best-served tenth of the clients.
    """
    if undefined and np.isnan(values).any():
        if values.ndim > 1:  # other clients may be left out of every row
            rows = [across_clients(row, sizes, higher_is_better, undefined=True) for row in values]
            return {name: np.stack([row[name] for row in rows]) for name in STATISTICS}
        sizes = np.where(np.isnan(values), 0, sizes)
    held = sizes > 0
    values, sizes = values[..., held], sizes[held]
    if not len(sizes):
        return dict.fromkeys(STATISTICS, np.full(values.shape[:-1], np.nan))
    tenth = ceil(len(sizes) / 10)
    worst_first = np.sort(values) if higher_is_better else np.sort(values)[..., ::-1]
    with np.errstate(all="ignore"):  # the losses of a run that diverges may overflow: the figures say so
        return {
            "mean": values.mean(-1),
            "weighted_mean": np.average(values, axis=-1, weights=sizes),
            "variance": values.var(-1),
            "std": values.std(-1),
            "worst_10": worst_first[..., :tenth].mean(-1),
            "best_10": worst_first[..., -tenth:].mean(-1),
        }


def share_worse(ours: Floats, theirs: Floats, higher_is_better: bool) -> float:
    """The share of clients whose figure [N] is worse than the other one; equal is not worse.

    A figure that is not a number is worse than one that is. Clients that have neither are left out: they hold no
    examples of the part that is looked at.
    """
    held = ~(np.isnan(ours) & np.isnan(theirs))
    if not held.any():
        return float("nan")
    ours, theirs = ours[held], theirs[held]
    lower = ours < theirs if higher_is_better else ours > theirs
    return float((lower | (np.isnan(ours) & ~np.isnan(theirs))).mean())
