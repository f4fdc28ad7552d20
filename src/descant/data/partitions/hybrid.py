"""Hybrid skew: half the clients differ by label, the other half by quantity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.partitions.base import Dealt, IntArray, Targets
from descant.data.partitions.dirichlet import Quantity
from descant.data.partitions.labels import Labels
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class Hybrid(Dealt):
    """Hybrid skew: the first half of the clients gets shards by label, the other Dir(alpha) quantities (FLAME).

    Each half deals its share of the examples, drawn at random.  With overlap=True each half deals the whole data
    set, and clients of the second half overlap among themselves too, as in FLAME's code.
    """

    name: ClassVar[str] = "hybrid"

    labels: int = 2
    alpha: float = 0.5
    least: int = 10
    overlap: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "clients", self.clients >= 2, "at least 2, one for each half")
        require(self, "labels", self.labels >= 1, "a positive number")
        require(self, "alpha", 0 < self.alpha < np.inf, "a positive number")

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        self.check_enough(len(targets))
        rng = self.generator(seed)
        labels, quantity = self._halves()
        first = second = rng.permutation(len(targets))
        if not self.overlap:
            first, second = np.split(first, [len(first) * labels.clients // self.clients])
        hands = [first[hand] for hand in labels.deal(targets[first], rng)]
        return hands + [second[hand] for hand in quantity.deal(len(second), rng)]

    def _halves(self) -> tuple[Labels, Quantity]:
        half = (self.clients + 1) // 2
        labels = Labels(clients=half, labels=self.labels, least=self.least)
        rest = Quantity(clients=self.clients - half, alpha=self.alpha, least=self.least, overlap=self.overlap)
        return labels, rest
