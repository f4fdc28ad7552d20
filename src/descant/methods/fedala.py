"""FedALA: a client learns, number by number, how much of the global model to take over before it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling.layers import coordinates
from descant.errors import require, require_different
from descant.methods.base import Gradient, LocalView, Tree, Work
from descant.methods.fedavg import FedAvg
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class FedALA(FedAvg):
    """FedALA (Zhang et al., 2023), Algorithm 1: local training from x = v + W (w - v), W in [0, 1]^d.

    v is the model that the client trained last, w the global one. In `layers`, by default the last one, W goes down
    the loss of x with the rate `eta`, for `ala_epochs` over the client's training data, and is held in [0, 1]:
    W <- W - eta grad f_k(x) (w - v). In all other layers it is one, and the client takes w. Then x is trained, and
    becomes v. A client deploys x as it is before it is trained, with W learnt on; these gradients are on nobody's
    bill, and counted apart (`evaluation_gradients`). (The authors' code learns W on 80 % of the data and, the first
    time, until it no longer changes. Its rate and its layers are the defaults here.)

    Sends what FedAvg sends; v and W never leave the client. eta = 0 is FedAvg.
    """

    name: ClassVar[str] = "fedala"
    paper: ClassVar[str] = "Zhang et al. 2023, FedALA: Adaptive Local Aggregation for Personalized FL"
    personalizes: ClassVar[bool] = True

    layers: tuple[str, ...] | None = None
    eta: float = 1.0
    ala_epochs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_different(self, "layers", self.layers)
        require(self, "eta", self.eta >= 0, "zero or more")
        require(self, "ala_epochs", self.ala_epochs >= 1, "a positive number")

    def server_start(self, ctx: Context) -> Tree:
        self.learns(ctx.layout)  # an unknown layer is found now
        return super().server_start(ctx)

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start, "W": torch.ones_like(local.start)}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        W = self.learnt(down, state, local)
        x = self.train(between(W, state["v"], down["w"]), local)
        return self.message(x - down["w"], local), {"v": x, "W": W}

    def learnt(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """W [K, d], learnt on from where it was."""
        w, v = down["w"], state["v"]
        on = self.learns(local.layout).to(w).expand_as(w)
        work, role = Work(epochs=self.ala_epochs, batch=self.batch), "personal/weights"
        return local.run(self.step_of_weights, state["W"], v, w, on, work=work, role=role, start="shared")

    def learns(self, layout: Layout) -> Tensor:
        """Which numbers [d] have a weight that is learnt."""
        return coordinates(layout, layout.last if self.layers is None else self.layers)

    def step_of_weights(self, W: Tensor, grad: Gradient, v: Tensor, w: Tensor, on: Tensor) -> Tensor:
        return (W - self.eta * on * grad(between(W, v, w)) * (w - v)).clamp(0, 1)

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return between(self.learnt(down, state, local), state["v"], down["w"])

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]


def between(W: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """v + W (w - v), number by number; w itself where W is one."""
    return torch.where(W == 1, w, v + W * (w - v))
