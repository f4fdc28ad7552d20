"""Messages turned around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.attacks.forging import Forging, each_times
from descant.context import Context
from descant.errors import require
from descant.mail import Mail


@dataclass(frozen=True, kw_only=True)
class SignFlip(Forging):
    """An attacker sends -|c| times its honest message; c ~ N(0, tau^2), anew in each round and for each attacker.

    lp-proj (Lin et al., 2024), section 7.3, with tau = 10. `tau` is a standard deviation (the paper says variance).
    """

    name: ClassVar[str] = "sign-flip"

    tau: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "tau", 0 < self.tau < float("inf"), "a positive number")

    def forged(self, ctx: Context, name: str, leaf: Tensor, mail: Mail, benign: Mail) -> Tensor:
        return each_times(-self.tau * ctx.each(mail.clients).normal("sign-flip").abs(), leaf)
