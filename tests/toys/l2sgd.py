"""L2SGD (Hanzely and Richtarik, 2020): a coin decides between local steps and a pull towards the mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.context import Context
from descant.methods import Aggregate, Gradient, LocalView, Messages, Method, PerClient, ServerView, Tree, Work


@dataclass(frozen=True, kw_only=True)
class L2SGD(Method):
    """With probability p, x_k <- x_k - lr lam / p (x_k - mean); otherwise x_k <- x_k - lr / (1 - p) grad f_k(x_k).

    The mean is taken in the round itself: models go up, and their mean comes down again.
    """

    name: ClassVar[str] = "l2sgd"
    paper: ClassVar[str] = "Hanzely and Richtarik 2020, Federated Learning of a Mixture of Global and Local Models"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    p: float = 0.4
    lam: float = 0.5
    lr: float = 0.1
    batch: int | None = None

    def server_start(self, ctx: Context) -> Tree:
        return {"mean": ctx.x0}

    def client_start(self, local: LocalView) -> Tree:
        return {"x": local.start}

    def silent(self, server: ServerView) -> bool:
        return server.ctx.coin >= self.p

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        if local.coin < self.p:
            return {"x": state["x"]}, state
        return {}, {"x": local.run(self.step, state["x"], work=Work(steps=1, batch=self.batch), role="personal")}

    def step(self, x: Tensor, grad: Gradient) -> Tensor:
        return x - self.lr / (1 - self.p) * grad(x)

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"mean": aggregate(messages)["x"]}

    def reply(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"mean": server["mean"]}

    def hear(self, reply: Tree, state: Tree, local: LocalView) -> Tree:
        x = state["x"]
        return {"x": x - self.lr * self.lam / self.p * (x - reply["mean"])}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]
