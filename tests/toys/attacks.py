"""Attackers that know what the others send, and one that remembers it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from descant.attacks import Attack
from descant.context import Context
from descant.data import FederatedData, Part
from descant.mail import Mail
from descant.methods import Tree


@dataclass(frozen=True, kw_only=True)
class Opposite(Attack):
    """Attackers send minus the mean of the benign updates."""

    name: ClassVar[str] = "opposite"

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        if not benign:
            return state, mail
        return state, mail.moved({n: -u.mean(0).expand_as(mail[n]) for n, u in benign.updates().items()})


@dataclass(frozen=True, kw_only=True)
class Grudge(Attack):
    """Attackers send minus the sum of all benign means so far, each weighing `beta` times the one after it."""

    name: ClassVar[str] = "grudge"

    beta: float = 0.5

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        if benign:
            means = {name: update.mean(0) for name, update in benign.updates().items()}
            state = {n: self.beta * state.get(n, torch.zeros_like(mean)) + mean for n, mean in means.items()}
        return state, mail.moved({name: -total.expand_as(mail[name]) for name, total in state.items()})


@dataclass(frozen=True, kw_only=True)
class Veiled(Attack):
    """Attackers move their training inputs by noise that nobody else can repeat, drawn once, before the run."""

    name: ClassVar[str] = "veiled"

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        train, owners = data.train, data.train.owners
        noise = torch.zeros(len(data), *train.inputs.shape[1:], dtype=train.inputs.dtype)
        noise[who] = ctx.private.normal(self.name, tuple(train.inputs.shape[1:])).to(noise.dtype)
        return replace(data, train=Part(train.inputs + noise[owners], train.targets, train.offsets))
