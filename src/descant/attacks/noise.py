"""Messages that say nothing of the attacker's data: one number, noise, or noise as large as an honest update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.attacks.forging import Drawn, Forging, each_times
from descant.context import Context
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class SameValue(Drawn):
    """An attacker sends c times the vector of ones; c ~ N(0, tau^2), anew in each round and for each attacker.

    lp-proj (Lin et al., 2024), section 4.2, with tau = 100, a standard deviation (the paper says variance).
    """

    name: ClassVar[str] = "same-value"

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        return each_times(self.tau * ctx.each(mail.clients).normal(self.name), torch.ones_like(leaf))


@dataclass(frozen=True, kw_only=True)
class Gaussian(Drawn):
    """An attacker sends draws from N(0, tau^2), anew in each round, for each attacker and coordinate.

    lp-proj (Lin et al., 2024), section 4.2, with tau = 100, a standard deviation (the paper says variance).
    """

    name: ClassVar[str] = "gaussian"

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        drawn = ctx.each(mail.clients).normal(f"{self.name}.{name}", tuple(leaf.shape[1:]))
        return (self.tau * drawn).to(leaf.dtype)


@dataclass(frozen=True, kw_only=True)
class RandomUpdate(Forging):
    """Ditto's A2 (Li et al., 2021, Definition 1): zero-mean Gaussian updates, as large as the attacker's own.

    Their standard deviation is that of all numbers of the honest update, as in the authors' code. There attackers
    train on poisoned labels as well: attacks=["random-labels", "random-update"].
    """

    name: ClassVar[str] = "random-update"

    on: Literal["message", "update", "position"] = "update"

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        if not leaf.numel():
            return leaf
        size = leaf.reshape(len(leaf), -1).std(1, correction=0)
        drawn = ctx.each(mail.clients).normal(f"{self.name}.{name}", tuple(leaf.shape[1:]))
        return each_times(size, drawn.to(leaf.dtype))
