"""Defences that look at how far messages moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.aggregators.assumed import Assuming
from descant.aggregators.before import Before, rows_of, scaled
from descant.context import Context
from descant.coupling.distances import norms
from descant.errors import require
from descant.mail import Mail


def clipped(leaf: Tensor, bound: Tensor | float) -> Tensor:
    """The rows of a leaf [S, ...], scaled down to the norm `bound` where they are longer.

    One that is not finite has no direction, and becomes zero.
    """
    length = norms(rows_of(leaf))
    factor = torch.where(length > bound, bound / length, 1.0)
    return scaled(leaf, factor)


@dataclass(frozen=True, kw_only=True)
class NormClipping(Before):
    """Updates are scaled down to a `norm` (Sun et al., 2019), or to their "median", as in Ditto's code.

    Leaf by leaf, where a message says what it moved away from; running statistics (BatchNorm) are a leaf too, and
    move away from the server's. With the median it bounds what f attackers of 2f + 1 messages can do; with a fixed
    norm, what any number can.
    """

    name: ClassVar[str] = "norm-clipping"
    updates: ClassVar[bool] = True

    norm: float | Literal["median"] = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.norm == "median" if isinstance(self.norm, str) else 0 < self.norm < float("inf")
        require(self, "norm", right, "a positive number, or 'median'")

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        return mail.moved({name: clipped(way, self.bound(way)) for name, way in mail.updates().items()})

    def bound(self, update: Tensor) -> Tensor | float:
        return norms(rows_of(update)).median() if isinstance(self.norm, str) else self.norm


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping(Assuming, Before):
    """Adaptive robust clipping, ARC (Allouah et al., 2025): the longest updates become as long as the next one.

    The k = floor(2 f/S (S - f)) longest are scaled down to the norm of the (k + 1)-th longest.
    """

    name: ClassVar[str] = "adaptive-clipping"
    updates: ClassVar[bool] = True

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        return mail.moved({name: clipped(way, self.bound(way)) for name, way in mail.updates().items()})

    def bound(self, update: Tensor) -> Tensor:
        S, f = len(update), self.attackers(len(update))
        k = 2 * f * (S - f) // S
        return norms(rows_of(update)).sort(descending=True).values[min(k, S - 1)]


@dataclass(frozen=True, kw_only=True)
class KNorm(Assuming, Before):
    """k-norm (Ditto, Li et al., 2021, section 4): the f messages whose update is longest are left out.

    It looks at the first leaf. Attackers whose updates are no longer than the others' stay.
    """

    name: ClassVar[str] = "k-norm"
    updates: ClassVar[bool] = True
    per_attacker: ClassVar[int] = 1

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        name, leaf = next(iter(mail.items()))
        length = norms(rows_of(mail.updates().get(name, leaf)))
        kept = length.argsort(stable=True)[: len(leaf) - self.attackers(len(leaf))].sort().values
        return mail.only(kept)
