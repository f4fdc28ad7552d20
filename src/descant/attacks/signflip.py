"""Messages turned around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.attacks.forging import Drawn, each_times
from descant.context import Context
from descant.errors import require
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class SignFlip(Drawn):
    """An attacker sends -|c| times its honest message; c ~ N(0, tau^2), anew in each round and for each attacker.

    lp-proj (Lin et al., 2024), section 4.2, with tau = 10. `tau` is a standard deviation (the paper says variance).
    `of` is what is turned around: the attacker's "own" message or, as in FLAME's code, what it "received" from the
    server, where there is a broadcast in the space of the message.
    """

    name: ClassVar[str] = "sign-flip"

    tau: float = 10.0
    of: Literal["own", "received"] = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "of", self.of in ("own", "received"), "'own' or 'received'")

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        turned = mail.heard.get(name, leaf).expand_as(leaf) if self.of == "received" else leaf
        return each_times(-self.tau * ctx.each(mail.clients).normal("sign-flip").abs(), turned)
