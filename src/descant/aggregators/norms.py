"""Defences that look at how far messages moved."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.aggregators.assumed import Assuming
from descant.aggregators.before import Before, rows_of, scaled
from descant.aggregators.mean import Mean
from descant.context import Context
from descant.coupling.distances import norms
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Clipping(Before):
    """Updates are scaled down to a norm where they are longer; one that is not finite becomes zero."""

    updates: ClassVar[bool] = True

    @abstractmethod
    def bound(self, length: Tensor) -> Tensor | float:
        """The norm that no update exceeds afterwards, from the norms [S] of all of them."""

    def factors(self, update: Tensor) -> Tensor:
        """What [S] updates [S, ...] are multiplied by."""
        length = norms(rows_of(update))
        bound = self.bound(length)
        return torch.where(length > bound, bound / length, 1.0)

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        return mail.moved({name: scaled(way, self.factors(way)) for name, way in self.ways(mail).items()})

    def ways(self, mail: Mail) -> Tree:
        """The updates that can be scaled: whole numbers cannot, and stay."""
        return {name: way for name, way in mail.updates().items() if way.is_floating_point()}

    def combine(self, ctx: Context, state: Tree, mail: Mail) -> tuple[Tree, Tree]:
        """The mean of what `prepare` gives; where all updates are finite, without a copy of the messages."""
        ways = self.ways(mail)
        factors = {name: self.factors(way) for name, way in ways.items()}
        if any(bool((factor == 0).any()) for factor in factors.values()):
            return super().combine(ctx, state, mail)
        combined: Tree = {}
        for name, leaf in mail.items():
            if name not in ways:
                combined |= Mean()({name: leaf}, mail.weights)
                continue
            reference, way = mail.references[name].to(leaf.dtype), ways[name]
            p = torch.ones(len(leaf), device=leaf.device) if mail.weights is None else mail.weights
            share = (factors[name] * p.double() / p.double().sum()).to(leaf.dtype)
            start = reference[0] if len(reference) == 1 else Mean()({name: reference}, mail.weights)[name]
            combined[name] = start + torch.tensordot(share, way, dims=1)
        return state, combined


@dataclass(frozen=True, kw_only=True)
class NormClipping(Clipping):
    """Updates are scaled down to a `norm` (Sun et al., 2019), or to their "median", as in Ditto's code.

    Leaf by leaf, where a message says what it moved away from; running statistics (BatchNorm) are a leaf too, and
    move away from the server's. With the median it bounds what f attackers of 2f + 1 messages can do; with a fixed
    norm, what any number can.
    """

    name: ClassVar[str] = "norm-clipping"

    norm: float | Literal["median"] = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.norm == "median" if isinstance(self.norm, str) else 0 < self.norm < float("inf")
        require(self, "norm", right, "a positive number, or 'median'")

    def bound(self, length: Tensor) -> Tensor | float:
        return length.median() if isinstance(self.norm, str) else self.norm


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping(Assuming, Clipping):
    """Adaptive robust clipping, ARC (Allouah et al., 2025): the longest updates become as long as the next one.

    The k = floor(2 f/S (S - f)) longest are scaled down to the norm of the (k + 1)-th longest.
    """

    name: ClassVar[str] = "adaptive-clipping"

    def bound(self, length: Tensor) -> Tensor:
        S, f = len(length), self.attackers(len(length))
        k = 2 * f * (S - f) // S
        return length.sort(descending=True).values[min(k, S - 1)]


@dataclass(frozen=True, kw_only=True)
class KNorm(Assuming, Before):
    """k-norm (Ditto, Li et al., 2021, section 4): the f messages whose update is longest are left out.

    It looks at the first leaf. Attackers whose updates are no longer than the others' stay.
    """

    name: ClassVar[str] = "k-norm"
    updates: ClassVar[bool] = True
    per_attacker: ClassVar[int] = 1

    def left(self, messages: int) -> int:
        return messages - self.attackers(messages)

    def prepare(self, ctx: Context, mail: Mail) -> Mail:
        name, leaf = next(iter(mail.items()))
        length = norms(rows_of(mail.updates().get(name, leaf)))
        kept = length.argsort(stable=True)[: self.left(len(leaf))].sort().values
        return mail.only(kept)
