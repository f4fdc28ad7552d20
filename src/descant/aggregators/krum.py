"""Krum, multi-Krum and Bulyan: the messages that have many others nearby."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.aggregators.assumed import Assuming
from descant.aggregators.base import RecordFigure, unheard
from descant.aggregators.selecting import mean_of, primary
from descant.coupling.distances import squared_distances

Convention = Literal["paper", "lp-proj"]


def scores(squared: Tensor, f: int, convention: Convention = "paper") -> Tensor:
    """How far each message [S] is from its nearest others, from the squared distances [S, S].

    "paper" (Blanchard et al., 2017): the sum of the squared distances to the S - f - 2 nearest others. "lp-proj",
    as that code has it: the sum of the S - f - 1 least distances, not squared, of which the first is the
    zero distance to itself. Both look at S - f - 2 others; the paper at one at least.
    """
    others = max(1 if convention == "paper" else 0, len(squared) - f - 2)
    near = squared.sort(1).values[:, 1 : 1 + others]  # the nearest to each is itself
    return (near if convention == "paper" else near.sqrt()).sum(1)


@dataclass(frozen=True, kw_only=True)
class Krum(Assuming):
    """Krum (Blanchard et al., 2017), section 4: the message with the least score, alone.

    A score is the sum of the squared distances to the S - f - 2 nearest others. It survives f attackers of 2f + 3
    messages. With `convention="lp-proj"` a score is the sum of the distances themselves, a share is rounded down,
    and f is not cut to what can be survived, as in the code of lp-proj: if f is S - 2 or more, all scores are
    zero, and the first message is taken.
    """

    name: ClassVar[str] = "krum"
    beside: ClassVar[int] = 3

    convention: Convention = "paper"

    def attackers(self, messages: int) -> int:
        if self.convention == "paper" or self.f is None:
            return super().attackers(messages)
        f = floor(round(self.f * messages, 9)) if isinstance(self.f, float) else self.f
        return min(f, messages - 1)

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        return mean_of(leaves, self.choose(primary(leaves)))

    def choose(self, x: Tensor) -> Tensor:
        """The places of the chosen rows of x [S, d]."""
        return scores(squared_distances(x), self.attackers(len(x)), self.convention).argsort(stable=True)[:1]


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """Multi-Krum (Blanchard et al., 2017): the mean of the `m` messages with the least scores of Krum.

    By default m = S - f, as in Ditto's code. It survives f attackers of 2f + 3 messages if m is at most S - f.
    """

    name: ClassVar[str] = "multi-krum"

    m: int | None = None

    def choose(self, x: Tensor) -> Tensor:
        f = self.attackers(len(x))
        m = len(x) - f if self.m is None else min(self.m, len(x))
        return scores(squared_distances(x), f, self.convention).argsort(stable=True)[:m]


@dataclass(frozen=True, kw_only=True)
class Bulyan(Krum):
    """Bulyan (El Mhamdi et al., 2018), section 4, over Krum.

    Krum chooses a message, again and again among those that are left, until there are S - 2f. Of these, each
    coordinate is the mean of the S - 4f values that are nearest to their median. It survives f attackers of 4f +
    3.
    """

    name: ClassVar[str] = "bulyan"
    per_attacker: ClassVar[int] = 4

    def attackers(self, messages: int) -> int:
        return Assuming.attackers(self, messages)  # there is no code of lp-proj for it

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        chosen = self.choose(primary(leaves))
        f = self.attackers(len(next(iter(leaves.values()))))
        return {name: _near_median(leaf[chosen], len(chosen) - 2 * f) for name, leaf in leaves.items()}

    def choose(self, x: Tensor) -> Tensor:
        f, left = self.attackers(len(x)), torch.ones(len(x), dtype=torch.bool, device=x.device)
        near, who = squared_distances(x).sort(1)  # once: only who is left changes
        near = near if self.convention == "paper" else near.sqrt()
        chosen = []
        for taken in range(len(x) - 2 * f):
            others = max(1, len(x) - taken - f - 2)
            place = left[who].cumsum(1)  # among those who are left; the nearest to each is itself
            counts = left[who] & (place > 1) & (place <= 1 + others)
            found = torch.where(counts, near, 0).sum(1)
            best = torch.where(left, found, torch.nan).argsort(stable=True)[:1]  # NaN comes last
            chosen.append(best)
            left[best] = False
        return torch.cat(chosen)


def _near_median(leaf: Tensor, number: int) -> Tensor:
    """The mean of every coordinate's `number` values [S, ...] that are nearest to its median."""
    middle = leaf.quantile(0.5, dim=0) if leaf.is_floating_point() else leaf.median(0).values
    nearest = (leaf - middle).abs().argsort(dim=0, stable=True)[:number]
    return leaf.gather(0, nearest).mean(0)
