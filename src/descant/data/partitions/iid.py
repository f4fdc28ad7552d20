"""IID: every client holds examples of the same kind, and as many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.partitions.base import Dealt, IntArray, Targets


@dataclass(frozen=True, kw_only=True)
class IID(Dealt):
    """No skew: the examples are shuffled and cut into equal parts (one more here and there)."""

    name: ClassVar[str] = "iid"

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        self.check_enough(len(targets))
        return np.array_split(self.generator(seed).permutation(len(targets)), self.clients)
