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
from descant.aggregators.before import rows_of
from descant.aggregators.selecting import mean_of, primary
from descant.coupling.columns import by_columns, ordered
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
    zero, and the first message is taken: here, where messages come in the order of their senders' numbers, that of
    the lowest.
    """

    name: ClassVar[str] = "krum"
    weighs: ClassVar[bool] = False
    beside: ClassVar[int] = 3

    convention: Convention = "paper"

    @property
    def share_below(self) -> float:
        return super().share_below if self.convention == "paper" else 1.0

    def asked(self, messages: int) -> int:
        if self.convention == "paper" or not isinstance(self.f, float):
            return super().asked(messages)
        return floor(round(self.f * messages, 9))

    def most(self, messages: int) -> int:
        return super().most(messages) if self.convention == "paper" or self.f is None else messages - 1

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

    @property
    def share_below(self) -> float:
        return 1 / self.per_attacker

    def asked(self, messages: int) -> int:
        return Assuming.asked(self, messages)  # there is no code of lp-proj for it

    def most(self, messages: int) -> int:
        return Assuming.most(self, messages)

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: RecordFigure = unheard
    ) -> dict[str, Tensor]:
        chosen = self.choose(primary(leaves))
        f = self.attackers(len(next(iter(leaves.values()))))
        return {name: _near_median(leaf[chosen], len(chosen) - 2 * f) for name, leaf in leaves.items()}

    def choose(self, x: Tensor) -> Tensor:
        S, f = len(x), self.attackers(len(x))
        near, who = squared_distances(x).sort(1)  # once: only who is left changes
        near = near if self.convention == "paper" else near.sqrt()
        window = _Window(near, who)
        chosen: list[int] = []
        for taken in range(S - 2 * f):
            found = window.sums(others=max(1, S - taken - f - 2))
            best = int(torch.where(window.left, found, torch.nan).argsort(stable=True)[0])  # NaN comes last
            chosen.append(best)
            window.leave(best)
        return torch.tensor(chosen, device=x.device)


class _Window:
    """The nearest of each message among those that are left, kept up to date while one after the other leaves.

    `near` [S, S] are the distances of each message in ascending order, and `who` [S, S] whose they are.
    """

    def __init__(self, near: Tensor, who: Tensor) -> None:
        self.near, self.who, self.place = near, who, who.argsort(1)
        self.left = torch.ones(len(near), dtype=torch.bool, device=near.device)
        self.others, self._last = -1, self.place[:, 0]  # nothing is counted yet

    def sums(self, others: int) -> Tensor:
        """The sums [S] of the distances to the nearest others that are left."""
        if others != self.others:
            order = self.left[self.who]
            inside = order & (order.cumsum(1) <= 1 + others)  # and itself, at a distance of 0
            self.counted = torch.where(inside, self.near, 0)
            self._last = inside.shape[1] - 1 - inside.flip(1).long().argmax(1)  # where the farthest stands
            self.others = others
        return self.counted.sum(1)

    def leave(self, one: int) -> None:
        """A message leaves, and the window shrinks by one: by that message, or by the farthest that it holds."""
        self.left[one] = False
        rows, at = torch.arange(len(self.near), device=self.near.device), self.place[:, one]
        out = torch.minimum(at, self._last)
        self.counted[rows, out] = 0
        while True:  # the farthest that is still inside
            gone = (self._last >= 0) & ((self._last == out) | ~self.left[self.who[rows, self._last.clamp(min=0)]])
            if not bool(gone.any()):
                break
            self._last = self._last - gone.long()
        self.others -= 1


def _near_median(leaf: Tensor, number: int) -> Tensor:
    """The mean of every coordinate's `number` values [S, ...] that are nearest to its median."""
    if not leaf[0].numel():  # of no numbers there is no median
        return leaf[0]

    def of(x: Tensor) -> Tensor:
        values = ordered(x)
        off = (values - (values[(len(x) - 1) // 2] + values[len(x) // 2]) / 2).abs()
        # In order, the nearest lie together: they are those whose two ends reach least far.
        first = torch.maximum(off[: len(x) - number + 1], off[number - 1 :]).argmin(0)
        return values.gather(0, first + torch.arange(number, device=x.device)[:, None]).mean(0)

    return by_columns(rows_of(leaf), of).view(leaf.shape[1:])
