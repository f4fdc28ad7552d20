"""Attackers that know what the others send, and one that remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from descant.attacks import Attack
from descant.context import Context
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
