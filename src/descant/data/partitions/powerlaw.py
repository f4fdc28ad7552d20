"""Power law: few clients hold most of the examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.partitions.base import Dealt, FloatArray, IntArray, Targets, by_label, cut, hands_of, shares
from descant.data.partitions.labels import holdings, shards_of
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class PowerLawSizes(Dealt):
    """Sizes by a power law: the r-th largest client holds r^-exponent times what the largest does, or `least`.

    Which client is the r-th is drawn.  With `labels`, every client holds examples of that many labels, each label
    has as many holders as the others, and its examples go to them by the same law (Fed+, section 5.2, has one digit
    a client); sizes over all clients then follow it too, with a client of each rank for every label.
    """

    name: ClassVar[str] = "power-law"

    exponent: float = 1.0
    labels: int | None = None
    least: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "exponent", 0 <= self.exponent < np.inf, "zero or more")
        require(self, "labels", self.labels is None or self.labels >= 1, "a positive number, or nothing")

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        self.check_enough(len(targets))
        rng = self.generator(seed)
        rank = rng.permutation(self.clients)
        if self.labels is None:
            return cut(rng.permutation(len(targets)), shares(self.law(rank), len(targets), self.least))
        counts, rows = by_label(targets)
        left = shards_of(self, self.labels, counts, rng)
        chosen = holdings(left, self.clients, self.labels, rng)  # [N, labels]
        least = max(1, -(-self.least // self.labels))  # of every label held
        fits = bool((left * least <= counts).all())
        require(self, "least", fits, f"small enough for {least} of each label held: one is too rare")
        owner = np.empty(len(targets), dtype=np.int64)
        for label, own in enumerate(rows):
            holders = np.flatnonzero((chosen == label).any(axis=1))
            weights = self.law(np.argsort(np.argsort(rank[holders])))
            owner[rng.permutation(own)] = np.repeat(holders, shares(weights, len(own), least))
        return hands_of(owner, self.clients)

    def law(self, rank: IntArray) -> FloatArray:
        """The weight of every rank, counted from 0."""
        weights: FloatArray = np.exp(-self.exponent * np.log(rank + 1.0))
        return weights
