"""Natural clients: whoever the examples come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.errors import DataError
from descant.data.partitions.base import IntArray, Partition, Targets, hands_of
from descant.errors import require


@dataclass(frozen=True, kw_only=True)
class Natural(Partition):
    """Natural clients: the writer, role, device, subject or hospital that each example comes from.

    With `clients`, owners are grouped in their order into that many clients of as many owners (one more here and
    there), as FLAME's code groups writers.  Owners with fewer than `least` examples are left out.
    """

    name: ClassVar[str] = "natural"

    clients: int | None = None
    least: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "clients", self.clients is None or self.clients >= 1, "a positive number, or nothing")
        require(self, "least", self.least >= 1, "a positive number")

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        if owners is None:
            raise DataError("the data does not say whose its examples are: give a partition other than 'natural'")
        hands = [hand for hand in hands_of(owners, int(owners.max()) + 1) if len(hand) >= self.least]
        require(self, "least", bool(hands), "smaller: no owner has that many examples")
        if self.clients is None:
            return hands
        fits = self.clients <= len(hands)
        require(self, "clients", fits, f"at most {len(hands)}, the number of owners with {self.least} examples")
        cuts = np.array_split(np.arange(len(hands)), self.clients)
        return [np.concatenate([hands[i] for i in group]) for group in cuts]
