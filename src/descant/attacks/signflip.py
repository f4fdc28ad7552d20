"""Messages turned around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.attacks.base import Attack
from descant.context import Context
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """An attacker sends -|c| times its honest message; c ~ N(0, tau^2), anew in each round and for each attacker.

    lp-proj (Lin et al., 2024), section 7.3, with tau = 10. `tau` is a standard deviation. on="update" turns around
    how the message moves, where it says what it is, instead of the message itself.
    """

    name: ClassVar[str] = "sign-flip"

    tau: float = 10.0
    on: Literal["message", "update"] = "message"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "tau", 0 < self.tau < float("inf"), "a positive number")
        require(self, "on", self.on in ("message", "update"), "'message' or 'update'")

    @property
    def updates(self) -> bool:
        return self.on == "update"

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        c = -self.tau * ctx.each(mail.clients).normal("sign-flip").abs()  # [M]

        def flipped(leaf: Tensor) -> Tensor:
            return c.to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1)) * leaf

        if self.on == "update":
            return state, mail.moved({name: flipped(update) for name, update in mail.updates().items()})
        return state, mail.with_leaves({n: flipped(leaf) for n, leaf in mail.items() if leaf.is_floating_point()})
