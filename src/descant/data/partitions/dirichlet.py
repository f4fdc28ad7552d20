"""Dirichlet skew: of labels, and of quantity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from descant.data.partitions.base import Dealt, FloatArray, IntArray, Targets, by_label, cut, shares
from descant.errors import require

_DRAWS = 100  # before a minimum size is given up


@dataclass(frozen=True, kw_only=True)
class _Dirichlet(Dealt):
    alpha: float = 0.5
    least: int = 10
    overlap: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", 0 < self.alpha < np.inf, "a positive number")

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def proportions(self, rng: np.random.Generator) -> FloatArray:
        return rng.dirichlet(np.full(self.clients, self.alpha))


@dataclass(frozen=True, kw_only=True)
class Dirichlet(_Dirichlet):
    """Label skew: of each label, client i gets the proportion p_i, p ~ Dir(alpha) (FLAME, section VI-A, its beta).

    All proportions are drawn anew until every client has `least` examples (up to 100 times).  With overlap=True
    every client draws its examples of a label independently of the others, as FLAME's code does: clients overlap,
    and some examples go to nobody.
    """

    name: ClassVar[str] = "dirichlet"

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        self.check_enough(len(targets))
        counts, rows = by_label(targets)
        for draw in range(_DRAWS):
            rng = self.generator(seed, draw)
            sizes = np.stack([shares(self.proportions(rng), n) for n in counts])  # [C, N]
            if (smallest := sizes.sum(0).min()) >= self.least:
                break
        require(
            self,
            "least",
            smallest >= self.least,
            f"smaller: Dir({self.alpha}) over {self.clients} clients left one with fewer in {_DRAWS} of {_DRAWS} "
            "draws (or raise alpha, or lower clients)",
        )
        pieces = [self._pieces(own, n, rng) for own, n in zip(rows, sizes, strict=True)]
        return [np.concatenate(own) for own in zip(*pieces, strict=True)]

    def _pieces(self, rows: IntArray, sizes: IntArray, rng: np.random.Generator) -> list[IntArray]:
        """Every client's examples of one label."""
        if self.overlap:
            return [rng.choice(rows, n, replace=False) for n in sizes]
        return cut(rng.permutation(rows), sizes)


@dataclass(frozen=True, kw_only=True)
class Quantity(_Dirichlet):
    """Quantity skew: client i gets the proportion p_i of all examples, p ~ Dir(alpha) (FLAME, section VI-A).

    Clients that would get fewer than `least` get that many, and the others less in proportion.  With overlap=True
    every client draws max(least, p_i M) examples from the whole data set, as FLAME's code does (with least=100):
    clients overlap, and some examples go to nobody.
    """

    name: ClassVar[str] = "quantity"

    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        return self.deal(len(targets), self.generator(seed))

    def deal(self, examples: int, rng: np.random.Generator) -> list[IntArray]:
        """The hands that a generator deals."""
        p = self.proportions(rng)
        if self.overlap:
            require(self, "least", self.least <= examples, f"at most {examples}, the number of examples")
            sizes = np.maximum(self.least, (p * examples).astype(np.int64))
            return [rng.choice(examples, n, replace=False) for n in sizes]
        self.check_enough(examples)
        return cut(rng.permutation(examples), shares(p, examples, self.least))
