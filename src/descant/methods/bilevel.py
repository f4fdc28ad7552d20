"""What the bilevel methods share: min_w mean_k min_x f_k(x) + lam g(w - x), by alternation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, Tree, Until, Work
from descant.methods.descent import Descent
from descant.methods.schedules import ByRound, in_round

Slope = Callable[[Tensor, Gradient, Tensor], Tensor]  # (x [K, d], grad, w) -> the gradient of the lower level


def role_of(r: int) -> str:
    """The role of alternation r: the first sees the minibatches of Local, so that without a penalty it is Local."""
    return f"personal/{r}" if r else "personal"


@dataclass(frozen=True, kw_only=True)
class Bilevel(Descent):
    """The fields of the bilevel methods.

    `lam` weighs the tie. `lr` is the rate of the lower level, `eta` that of the reference w, `R` the number of
    alternations a round, and w <- (1 - beta) w + beta mean of w_k, plain or, if `weighted`, by numbers of examples.

    By default the lower level is descended for 20 steps, each on a fresh minibatch, as the authors' codes do. With
    `nu`, as the papers write it, one minibatch is held and descended until the squared norm of the gradient is at
    most nu, or for `cap` steps; how many clients were capped is reported (at p = 1 a subgradient never vanishes).

    `eta`, `nu` and `batch` may depend on the round, as in Theorems 14 and 15 of lp-proj.
    """

    default_work: ClassVar[Work] = Work(steps=20)

    lam: float = 1.0
    eta: float | ByRound = 0.05
    R: int = 1
    beta: float = 1.0
    weighted: bool = False
    nu: float | ByRound | None = None
    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "eta", isinstance(self.eta, ByRound) or self.eta > 0, "a positive number")
        require(self, "R", self.R >= 1, "a positive number")
        require(self, "beta", self.beta > 0, "a positive number")
        positive = self.nu is None or isinstance(self.nu, ByRound) or self.nu > 0
        require(self, "nu", positive, "a positive number, or nothing")
        require(self, "cap", self.cap >= 1, "a positive number")
        require(self, "nu", self.nu is None or self.steps is self.epochs is None, "nothing where steps are given")

    def client_start(self, x: Tensor) -> Tree:
        return {"x": x}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def message(self, w: Tensor, local: LocalView) -> Tree:
        return {"w": w} | ({"n": local.n.to(torch.int32)} if self.weighted else {})

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"w": messages["w"]}, weights=messages.get("n"))
        return {"w": (1 - self.beta) * server["w"] + self.beta * mean["w"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]

    def minimise(self, slope: Slope, x: Tensor, w: Tensor, local: LocalView, role: str) -> Tensor:
        """The lower level: descend in x for a fixed reference w."""
        if self.nu is None:
            return local.run(partial(self._descend, slope), x, w, work=self.work, role=role)
        work = Work(steps=self.cap, batch=self.batch, hold=True, momentum=self.momentum)
        nu = x.new_full((len(x),), in_round(self.nu, local.round))
        return local.run(partial(self._descend_to_nu, slope), x, w, nu, work=work, role=role)

    def _descend(self, slope: Slope, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        return x - self.lr * slope(x, grad, w)

    def _descend_to_nu(self, slope: Slope, x: Tensor, grad: Gradient, w: Tensor, nu: Tensor) -> Until:
        g = slope(x, grad, w)
        return Until(x - self.lr * g, met=g.square().sum(-1) <= nu)
