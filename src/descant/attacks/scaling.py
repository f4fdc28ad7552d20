"""Messages made larger, so that they outweigh the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.attacks.forging import Drawn, Forging, each_times
from descant.context import Context
from descant.errors import require
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class Replacement(Forging):
    """Ditto's A3 (Li et al., 2021, Definition 1), model replacement: updates times a `factor`.

    By default it is the number of messages of the round, so that one attacker outweighs their mean. In the authors'
    code attackers train on poisoned labels as well: attacks=["random-labels", "replacement"].
    """

    name: ClassVar[str] = "replacement"

    factor: float | None = None
    on: Literal["message", "update", "position"] = "update"

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.factor is None or 0 < self.factor < float("inf")
        require(self, "factor", right, "a positive number, or nothing for the number of messages")

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        return (self.factor or float(len(mail.clients) + len(benign.clients))) * leaf


@dataclass(frozen=True, kw_only=True)
class RandomScale(Drawn):
    """A message times c ~ N(0, tau^2), anew in each round and for each attacker; its sign is random too.

    With noisy labels it is the data poisoning of lp-proj (Lin et al., 2024), section 5.4, with tau = 20:
    attacks=["random-labels", "random-scale"]. `tau` is a standard deviation.
    """

    name: ClassVar[str] = "random-scale"

    tau: float = 20.0

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        return each_times(self.tau * ctx.each(mail.clients).normal(self.name), leaf)
