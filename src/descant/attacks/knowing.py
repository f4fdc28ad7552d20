"""Attackers that know what the others send in a round, and agree on one update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.attacks.base import Attack, Defence
from descant.attacks.searching import most_harmful
from descant.context import Context
from descant.coupling.distances import squared_distances
from descant.errors import SettingError, require
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
        attackers = len(mail.clients)
        return state, self.sent(mail, benign, lambda known: self.update(known, attackers)) if benign else mail

    def sent(self, mail: Mail, benign: Mail, update: Callable[[Tensor], Tensor]) -> Mail:
        """The attackers' mail with the update [d] that they make of those of the others [B, d], leaf by leaf."""
        changed = {}
        for name, known in benign.updates().items():
            if not known.numel():  # a reference of no numbers has no deviation either
                continue
            sent = update(known.reshape(len(known), -1).double())
            changed[name] = sent.to(known.dtype).view(known.shape[1:]).expand_as(mail[name])
        return mail.moved(changed)


@dataclass(frozen=True, kw_only=True)
class Aimed(Knowing):
    """An update on a line through the benign ones, as far along it as a factor says.

    The factor is a number, or "search": then attackers know the server's aggregator, and try in each round which
    factor takes the aggregate furthest from the mean of the benign messages. The factors that they try are the
    paper's own, powers of two from 1/16 to 32, and some beside the best of these.
    """

    @property
    @abstractmethod
    def factor(self) -> float | Literal["search"] | None:
        """How far; None is what the paper says."""

    @abstractmethod
    def papers(self, benign: int, attackers: int) -> float:
        """The factor of the paper."""

    @abstractmethod
    def along(self, benign: Tensor, factor: float) -> Tensor:
        """The update [d] at a factor, from those of the others [B, d]."""

    def update(self, benign: Tensor, attackers: int) -> Tensor:
        if self.factor == "search":
            raise SettingError(f"attacks: '{self.name}' searches against an aggregator: call its `against`")
        return self.along(benign, self.papers(len(benign), attackers) if self.factor is None else self.factor)

    def against(self, ctx: Context, state: Tree, mail: Mail, benign: Mail, defence: Defence) -> tuple[Tree, Mail]:
        if self.factor != "search" or not benign:
            return self.forge(ctx, state, mail, benign)

        def at(factor: float) -> Mail:
            return self.sent(mail, benign, lambda known: self.along(known, factor))

        def harm(factor: float) -> float:
            return self.distance(defence(at(factor)), benign)

        return state, at(most_harmful(harm, self.papers(len(benign.clients), len(mail.clients))))

    def distance(self, combined: Tree, benign: Mail) -> float:
        """How far what the server would combine is from the mean of the benign messages, over all leaves."""
        known = [name for name in benign.references if name in combined]
        if not known:
            raise SettingError(
                f"attacks: '{self.name}' searches against the run's aggregator, and the method combines messages "
                "by itself: give it a number"
            )
        off = [(combined[name].double() - benign[name].double().mean(0)).flatten() for name in known]
        return float(torch.linalg.vector_norm(torch.cat(off)))


@dataclass(frozen=True, kw_only=True)
class ALIE(Aimed):
    """A little is enough (Baruch et al., 2019), Algorithm 3: mean - z std of the benign updates, coordinate by
    coordinate.

    By default `z` is the paper's: the largest for which enough benign clients are further from the mean, so that a
    majority with the attackers among it supports theirs. With z = "search" it is, in each round, the one that takes
    the aggregate furthest from the benign mean, by trying: attackers know the server's aggregator.
    """

    name: ClassVar[str] = "alie"

    z: float | Literal["search"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.z in (None, "search") or (isinstance(self.z, int | float) and abs(self.z) < float("inf"))
        require(self, "z", right, "a number, 'search', or nothing")

    @property
    def factor(self) -> float | Literal["search"] | None:
        return self.z

    def along(self, benign: Tensor, factor: float) -> Tensor:
        return benign.mean(0) - factor * benign.std(0, correction=0)

    def papers(self, benign: int, attackers: int) -> float:
        """z: the quantile of N(0, 1) at (n - m - s) / (n - m) with s = floor(n/2 + 1) - m supporters."""
        n, m = benign + attackers, attackers
        supporters = floor(n / 2 + 1) - m
        share = min(max((n - m - supporters) / (n - m), 1e-6), 1 - 1e-6)  # finite, also for a majority of attackers
        return float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Aimed):
    """Inner-product manipulation, IPM (Xie et al., 2020): -epsilon times the mean of the benign updates.

    With `epsilon` = "search" it is, in each round, the one that takes the aggregate furthest from the benign mean,
    by trying: attackers know the server's aggregator.
    """

    name: ClassVar[str] = "ipm"

    epsilon: float | Literal["search"] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.epsilon == "search" or (
            isinstance(self.epsilon, int | float) and 0 < self.epsilon < float("inf")
        )
        require(self, "epsilon", right, "a positive number, or 'search'")

    @property
    def factor(self) -> float | Literal["search"] | None:
        return self.epsilon

    def along(self, benign: Tensor, factor: float) -> Tensor:
        return -factor * benign.mean(0)

    def papers(self, benign: int, attackers: int) -> float:
        return 0.1


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
