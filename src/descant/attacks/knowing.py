"""Attackers that know what the others send in a round, and agree on one update."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.attacks.base import Attack
from descant.context import Context
from descant.coupling.distances import squared_distances
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree

_HALVINGS = 50


@dataclass(frozen=True, kw_only=True)
class Knowing(Attack):
    """All attackers send the same update, made leaf by leaf from those of the benign clients of the round.

    In a round without a benign message they send their own honest ones.
    """

    @property
    def updates(self) -> bool:
        return True

    @abstractmethod
    def update(self, benign: Tensor, attackers: int) -> Tensor:
        """What `attackers` send, knowing the updates [B, d] of the others."""

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        if not benign:
            return state, mail
        changed = {}
        for name, known in benign.updates().items():
            sent = self.update(known.reshape(len(known), -1).double(), len(mail.clients))
            changed[name] = sent.to(known.dtype).view(known.shape[1:]).expand_as(mail[name])
        return state, mail.moved(changed)


@dataclass(frozen=True, kw_only=True)
class ALIE(Knowing):
    """A little is enough (Baruch et al., 2019), Algorithm 3: mean - z std of the benign updates, coordinate by
    coordinate.

    By default z is the paper's: the largest for which enough benign clients are further from the mean, so that a
    majority with the attackers among it supports theirs.
    """

    name: ClassVar[str] = "alie"

    z: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "z", self.z is None or abs(self.z) < float("inf"), "a number, or nothing")

    def update(self, benign: Tensor, attackers: int) -> Tensor:
        return benign.mean(0) - self.strength(len(benign), attackers) * benign.std(0, correction=0)

    def strength(self, benign: int, attackers: int) -> float:
        """z: the quantile of N(0, 1) at (n - m - s) / (n - m) with s = floor(n/2 + 1) - m supporters."""
        if self.z is not None:
            return self.z
        n, m = benign + attackers, attackers
        supporters = floor(n / 2 + 1) - m
        share = min(max((n - m - supporters) / (n - m), 1e-6), 1 - 1e-6)  # finite, also for a majority of attackers
        return float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Knowing):
    """Inner-product manipulation, IPM (Xie et al., 2020): -epsilon times the mean of the benign updates."""

    name: ClassVar[str] = "ipm"

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "epsilon", 0 < self.epsilon < float("inf"), "a positive number")

    def update(self, benign: Tensor, attackers: int) -> Tensor:
        return -self.epsilon * benign.mean(0)


@dataclass(frozen=True, kw_only=True)
class MinMax(Knowing):
    """Min-max (Shejwalkar and Houmansadr, 2021), eq. 3: mean + gamma p, as far as no benign update is further away
    than the two benign ones that are furthest apart.

    p is minus the `direction`: the standard deviation of the coordinates ("std"), the mean as a unit vector
    ("unit"), or its signs ("sign").
    """

    name: ClassVar[str] = "min-max"

    direction: Literal["std", "unit", "sign"] = "std"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "direction", self.direction in ("std", "unit", "sign"), "'std', 'unit' or 'sign'")

    def update(self, benign: Tensor, attackers: int) -> Tensor:
        mean, p = benign.mean(0), -self.towards(benign)
        apart = squared_distances(benign)  # [B, B]
        low, high = 0.0, 1.0
        while self.fits(mean + high * p, benign, apart) and high < 1e12:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.fits(mean + middle * p, benign, apart) else (low, middle)
        return mean + low * p

    def towards(self, benign: Tensor) -> Tensor:
        mean = benign.mean(0)
        if self.direction == "std":
            return benign.std(0, correction=0)
        if self.direction == "sign":
            return mean.sign()
        length = torch.linalg.vector_norm(mean)
        return mean / length if length > 0 else mean

    def fits(self, sent: Tensor, benign: Tensor, apart: Tensor) -> bool:
        """Whether an update [d] is not conspicuous among the benign ones [B, d]."""
        return bool((benign - sent).square().sum(-1).max() <= apart.max())


@dataclass(frozen=True, kw_only=True)
class MinSum(MinMax):
    """Min-sum (Shejwalkar and Houmansadr, 2021), eq. 4: as min-max, but the sum of the squared distances to all
    benign updates is at most the largest such sum of a benign one."""

    name: ClassVar[str] = "min-sum"

    def fits(self, sent: Tensor, benign: Tensor, apart: Tensor) -> bool:
        return bool((benign - sent).square().sum() <= apart.sum(1).max())
