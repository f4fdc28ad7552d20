"""Messages turned around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.attacks.forging import Drawn, each_times
from descant.context import Context
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class SignFlip(Drawn):
    """An attacker sends -|c| times its honest message; c ~ N(0, tau^2), anew in each round and for each attacker.

    lp-proj (Lin et al., 2024), section 7.3, with tau = 10. `tau` is a standard deviation (the paper says variance).
    """

    name: ClassVar[str] = "sign-flip"

    tau: float = 10.0

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        return each_times(-self.tau * ctx.each(mail.clients).normal("sign-flip").abs(), leaf)
