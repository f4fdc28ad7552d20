"""Label skew by shards: a client holds a few labels only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.partitions.base import Dealt, IntArray, Targets, by_label
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class Labels(Dealt):
    """Shards by label: every client holds examples of `labels` labels (lp-proj, section C.1; FLAME, section VI-A).

    Each label's examples are shuffled and cut into shards, clients * labels in all and as even as can be.
    Every client in turn draws one shard of each of the labels with most shards left, so that it holds exactly
    `labels` labels (the deal of the lp-proj authors).  With distinct=False it draws any `labels` of the shards,
    which may be of the same label (FLAME's deal).  With equal=True all shards are of one size, that of the
    rarest label's, and what is left of the others goes to nobody (lp-proj's "equal" data).
    """

    name: ClassVar[str] = "labels"

    labels: int = 2
    distinct: bool = True
    equal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "labels", self.labels >= 1, "a positive number")

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        return self.deal(targets, self.generator(seed))

    def deal(self, targets: Targets, rng: np.random.Generator) -> list[IntArray]:
        """The hands that a generator deals."""
        counts, rows = by_label(targets)
        left = shards_of(self, self.labels, counts, rng)
        size = int((counts // left).min())
        shards = [
            np.array_split(rng.permutation(own)[: size * n if self.equal else None], n)
            for own, n in zip(rows, left, strict=True)
        ]
        if self.distinct:
            chosen = holdings(left, self.clients, self.labels, rng)
            hands = [np.concatenate([shards[label].pop() for label in own]) for own in chosen]
        else:
            pile = [shard for of_label in shards for shard in of_label]
            drawn = rng.permutation(len(pile)).reshape(self.clients, self.labels)
            hands = [np.concatenate([pile[i] for i in own]) for own in drawn]
        return self.check_sizes(hands)


def shards_of(partition: Dealt, labels: int, counts: IntArray, rng: np.random.Generator) -> IntArray:
    """How many shards each label is cut into [C]: clients * labels in all, even but for a random rest."""
    classes, shards = len(counts), partition.clients * labels
    require(partition, "labels", 1 <= labels <= classes, f"1 to {classes}, the number of labels there are")
    most = classes * int(counts.min())  # an example a shard of the rarest label
    fits = f"such that clients * labels, here {shards}, is {classes} (a shard of every label) to {most}"
    require(partition, "clients", classes <= shards <= most, fits)
    left = np.full(classes, shards // classes)
    left[rng.permutation(classes)[: shards % classes]] += 1
    return left


def holdings(shards: IntArray, clients: int, labels: int, rng: np.random.Generator) -> IntArray:
    """Which labels every client holds [N, labels], all different, where label c has shards[c] holders."""
    left = shards.copy()
    chosen = np.empty((clients, labels), dtype=np.int64)
    for k in range(clients):
        # Most left first, ties at random: the only greedy order in which distinct labels never run out.
        chosen[k] = np.lexsort((rng.random(len(left)), -left))[:labels]
        left[chosen[k]] -= 1
    return chosen
