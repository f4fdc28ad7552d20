"""What attacks on messages share: what they forge of a message, and a factor for each attacker."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from descant.attacks.base import Attack
from descant.context import Context
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Forging(Attack):
    """An attack that makes other numbers of an attacker's honest ones.

    on="message" forges the message itself, whatever a method sends: a model, an update, a projected vector, a dual.
    on="update" forges how the message moves, where it says what it is. on="position" forges where the message
    stands: of a method that sends w_k - w it forges w_k, and what is sent is the forged one less w. Whole numbers
    (of examples) stay.
    """

    on: Literal["message", "update", "position"] = "message"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "on", self.on in ("message", "update", "position"), "'message', 'update' or 'position'")

    @property
    def updates(self) -> bool:
        return self.on == "update"

    @abstractmethod
    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        """What attackers send in the place of a leaf [M, ...], or of how it moves, or of where it stands."""

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        if self.on == "update":
            honest = mail.updates()
        elif self.on == "position":
            honest = mail.positions()
        else:
            honest = {name: leaf for name, leaf in mail.items() if leaf.is_floating_point()}
        forged = {name: self.forged(ctx, name, leaf, mail, benign) for name, leaf in honest.items()}
        sent = {"message": mail.with_leaves, "update": mail.moved, "position": mail.placed}
        return state, sent[self.on](forged)


@dataclass(frozen=True, kw_only=True)
class Drawn(Forging):
    """A forgery that is drawn anew in each round and for each attacker; `tau` is a standard deviation."""

    tau: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "tau", 0 < self.tau < float("inf"), "a positive number")


def each_times(factor: Tensor, leaf: Tensor) -> Tensor:
    """The rows of a leaf [M, ...], each times its factor [M]."""
    return factor.to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1)) * leaf
