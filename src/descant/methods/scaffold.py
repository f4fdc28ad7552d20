"""SCAFFOLD: one model for all, trained with control variates against the drift of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import Sent, difference
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree, Work
from descant.methods.onemodel import OneModel
from descant.methods.optimizers import SGD, Down
from descant.methods.schedules import in_round


@dataclass(frozen=True, kw_only=True)
class Scaffold(OneModel):
    """SCAFFOLD (Karimireddy et al., 2020), Algorithm 1: y <- y - lr (g_k(y) - c_k + c), from y = w.

    The control variate c_k estimates the gradient of client k, and c is the mean of all c_k. `option` is how a
    client renews c_k, "I" or "II". Option I takes its gradient at w, on all its data: one gradient more. Option
    II, as in the paper's experiments, takes the mean of the gradients of its steps, c_k - c + (w - y) / (s lr)
    with s the steps that it really took, which holds for plain steps only: other optimizers are refused. The
    server moves w by `server_lr` times the mean update, and c by the mean change of c_k times the share of clients
    that sent.

    Sends y - w and the change of c_k, and hears w and c: two models up and two down. c is the mean of all c_k as
    long as every message arrives as it was sent; one that is lost, or changed on its way, leaves it apart.
    """

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging"

    option: Literal["I", "II"] = "II"
    server_lr: float = 1.0
    # A message that is dropped would leave a client with a c_k that the server does not know of.
    stragglers: Literal["drop", "keep"] = field(default="keep", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "option", self.option in ("I", "II"), "'I' or 'II'")
        require(self, "server_lr", self.server_lr > 0, "a positive number")
        moves = "with option 'II', which reads c_k off the moves"
        require(self, "momentum", self.option == "I" or not self.momentum, f"zero {moves}")
        require(self, "optimizer", self.option == "I" or type(self.optimizer) is SGD, f"sgd {moves}")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "c": torch.zeros_like(ctx.x0)}

    def client_start(self, local: LocalView) -> Tree:
        return {"c_k": torch.zeros_like(local.start)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"], "c": server["c"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, c, c_k = down["w"], down["c"], state["c_k"]
        y = local.run(self.step, w, c - c_k, work=self.work, role="shared")
        if self.option == "I":
            new = self.gradient(w, local)
        else:
            steps = local.taken("shared").steps[:, None].to(w.dtype)
            new = c_k - c + (w - y) / (steps * in_round(self.lr, local.round))
        return {"dw": y - w, "dc": new - c_k}, {"c_k": new}

    def step(self, x: Tensor, grad: Gradient, correction: Tensor) -> Down:
        return self.down(x, self.slope(x, grad) + correction)

    def gradient(self, w: Tensor, local: LocalView) -> Tensor:
        """The gradients [K, d] at w on all local data; they leave the running statistics as they are."""
        before = local.buffers["shared"]
        _, g = local.run(self.look, (w, torch.zeros_like(w)), work=Work(steps=1), role="shared/control")
        local.buffers["shared"] = before
        return g

    def look(self, x: tuple[Tensor, Tensor], grad: Gradient) -> tuple[Tensor, Tensor]:
        return x[0], self.slope(x[0], grad)

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"dw": messages["dw"], "dc": messages["dc"]})
        share = len(messages.clients) / server.ctx.clients
        return {"w": server["w"] + self.server_lr * mean["dw"], "c": server["c"] + share * mean["dc"]}

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"dw": difference(of="w"), "dc": difference(of="c")}

    @property
    def refuses(self) -> Mapping[str, str]:
        return {"trainers": "client and server must agree on c_k, so that only those who send may train"}
