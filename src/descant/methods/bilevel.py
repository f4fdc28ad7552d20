"""What the bilevel methods share: min_w mean_k min_x f_k(x) + lam g(w - x), by alternation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.errors import require
from descant.mail import Sent, position
from descant.methods.base import Aggregate, LocalView, Messages, PerClient, ServerView, Tree, Work
from descant.methods.inexact import Inexact, Slope
from descant.methods.schedules import ByRound, in_round


def role_of(r: int) -> str:
    """The role of alternation r: the first sees the minibatches of Local, so that without a penalty it is Local."""
    return f"personal/{r}" if r else "personal"


@dataclass(frozen=True, kw_only=True)
class Bilevel(Inexact):
    """The fields of the bilevel methods.

    `lam` weighs the tie. `lr` is the rate of the lower level, and `R` the number of alternations a round. `eta` is
    the rate of the reference w. `beta` is the server's share in w <- (1 - beta) w + beta mean of w_k. `weighted`
    takes the mean by numbers of examples.

    By default the lower level is descended for 20 steps, each on a fresh minibatch, as the authors' codes do. With
    `nu`, as the papers write it, one minibatch is held and descended until the squared norm of the gradient is at
    most nu, or for `cap` steps; how many clients were capped is reported (at p = 1 a subgradient never vanishes).

    The values of `eta`, `nu` and `batch` may depend on the round, as in Theorems 14 and 15 of lp-proj.
    """

    default_work: ClassVar[Work] = Work(steps=20)

    lam: float = 1.0
    eta: float | ByRound = 0.05
    R: int = 1
    beta: float = 1.0
    weighted: bool = False
    nu: float | ByRound | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "eta", isinstance(self.eta, ByRound) or self.eta > 0, "a positive number")
        require(self, "R", self.R >= 1, "a positive number")
        require(self, "beta", self.beta > 0, "a positive number")
        positive = self.nu is None or isinstance(self.nu, ByRound) or self.nu > 0
        require(self, "nu", positive, "a positive number, or nothing")
        require(self, "nu", self.nu is None or self.steps is self.epochs is None, "nothing where steps are given")

    def client_start(self, local: LocalView) -> Tree:
        return {"x": local.start}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def message(self, w: Tensor, local: LocalView) -> Tree:
        return {"w": w} | ({"n": local.n.to(torch.int32)} if self.weighted else {})

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"w": messages["w"]}, weights=messages.get("n"))
        return {"w": (1 - self.beta) * server["w"] + self.beta * mean["w"]}

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"w": position(since="w")}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]

    def minimise(self, slope: Slope, x: Tensor, w: Tensor, local: LocalView, role: str) -> Tensor:
        """The lower level: descend in x for a fixed reference w."""
        rule = None if self.nu is None else x.new_full((len(x),), in_round(self.nu, local.round))
        return self.descend(slope, x, w, local=local, role=role, rule=rule)
