"""RSA: personal models tied to a shared model by an l1 penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.methods.base import Gradient, LocalView, ServerView, Tree, signed_power
from descant.methods.bilevel import Bilevel, role_of
from descant.methods.schedules import in_round


@dataclass(frozen=True, kw_only=True)
class RSA(Bilevel):
    """RSA (Li et al., 2019) as lp-proj compares with it: min_w mean_k min_x f_k(x) + lam ||x - w||_1.

    Sends w_k = w - eta lam sign(w - x_k). It is lp-proj with P = I and p = 1, started at the initial model; RSA's
    own penalty is ||.||_p and not its p-th power, so that the two agree at p = 1 only. In the paper clients send
    x_k and the server takes the signs: w moves by the same step, with their sum in the place of their mean.

    `overflow` says what becomes of a reference that has overflowed, as in lp-proj.
    """

    name: ClassVar[str] = "rsa"
    paper: ClassVar[str] = "Li et al. 2019, RSA: Byzantine-Robust Stochastic Aggregation Methods"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    overflow: Literal["collapse", "local"] = "collapse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "overflow", self.overflow in ("collapse", "local"), "'collapse' or 'local'")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        x, w, eta = state["x"], down["w"], in_round(self.eta, local.round)
        for r in range(self.R):
            x = self.minimise(self.slope_of_lower, x, w, local, role=role_of(r))
            w = w - eta * self.lam * self.sign(w - x)
        return self.message(w, local), {"x": x}

    def slope_of_lower(self, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        return self.slope(x, grad) + self.lam * self.sign(x - w)

    def sign(self, c: Tensor) -> Tensor:
        sign = signed_power(c, 0)
        return sign.nan_to_num(nan=0.0) if self.overflow == "local" else sign

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]

    @property
    def unbounded(self) -> tuple[str, ...]:
        return ("w",) if self.overflow == "local" else ()
