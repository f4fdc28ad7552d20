"""Personal models pulled towards their mean: by coin flips (L2SGD), or in every step (MR-MTL)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import LAST, Sent, position
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree, Work
from descant.methods.descent import Descent
from descant.methods.optimizers import Down
from descant.methods.schedules import in_round


@dataclass(frozen=True, kw_only=True)
class L2SGD(Descent):
    """L2SGD (Hanzely and Richtarik, 2020), Algorithm 1: min mean_k f_k(x_k) + lam/2 ||x_k - mean of all x||^2.

    `lam` weighs the tie to the mean. A round is a flip of a coin that all parties see. With probability `p`,
    models go up, their mean comes down, and x_k <- x_k - lr lam / p (x_k - mean). Otherwise nothing travels, and
    x_k <- x_k - lr / (1 - p) grad f_k(x_k): one step, unless `steps` or `epochs` says more. `lr` is the paper's
    alpha over N. Sends x_k, in the rounds that talk. A client whose message is lost stays where it was.
    """

    name: ClassVar[str] = "l2sgd"
    paper: ClassVar[str] = "Hanzely and Richtarik 2020, Federated Learning of a Mixture of Global and Local Models"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True
    default_work: ClassVar[Work] = Work(steps=1)

    p: float = 0.4
    lam: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "p", 0 < self.p < 1, "between 0 and 1")
        require(self, "lam", self.lam >= 0, "zero or more")

    def server_start(self, ctx: Context) -> Tree:
        return {"mean": ctx.x0}

    def client_start(self, local: LocalView) -> Tree:
        return {"x": local.start}

    def silent(self, server: ServerView) -> bool:
        return server.ctx.coin >= self.p

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        if local.coin < self.p:
            return {"x": state["x"]}, state
        return {}, {"x": local.run(self.step, state["x"], work=self.work, role="personal")}

    def step(self, x: Tensor, grad: Gradient) -> Down:
        return self.down(x, self.slope(x, grad) / (1 - self.p))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"mean": aggregate({"x": messages["x"]})["x"]}

    def reply(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"mean": server["mean"]}

    def hear(self, reply: Tree, state: Tree, local: LocalView) -> Tree:
        x, lr = state["x"], in_round(self.lr, local.round)
        return {"x": x - lr * self.lam / self.p * (x - reply["mean"])}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]  # in a round that talks nothing is trained

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"x": position(since=LAST)}

    def first_sent(self, ctx: Context) -> Tree:
        return {"x": ctx.x0}

    @property
    def refuses(self) -> Mapping[str, str]:
        return {"newcomers": "a client hears of the others only in answer to its own message"}


@dataclass(frozen=True, kw_only=True)
class MRMTL(Descent):
    """MR-MTL, mean-regularized multi-task learning: min mean_k f_k(v_k) + lam/2 ||v_k - w||^2, w the mean of all v.

    v_k <- v_k - lr (grad f_k(v_k) + lam (v_k - w)), and w <- w + S/N mean of v_k - w over the S senders among N
    clients: with everyone in each round w is the mean. This is what the code of Ditto's authors runs under the
    name L2SGD. Sends v_k. `lam` weighs the tie: 0 is local training.
    """

    name: ClassVar[str] = "mr-mtl"
    paper: ClassVar[str] = "Evgeniou and Pontil 2004, Regularized Multi-Task Learning; Ditto, section 4.4"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True
    revision: ClassVar[int] = 2  # sends v_k, and no longer v_k - w

    lam: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        v = local.run(self.step, state["v"], down["w"], work=self.work, role="personal")
        return {"v": v}, {"v": v}

    def step(self, v: Tensor, grad: Gradient, w: Tensor) -> Down:
        return self.down(v, self.slope(v, grad) + self.lam * (v - w))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        share, w = len(messages.clients) / server.ctx.clients, server["w"]
        return {"w": w + share * (aggregate({"v": messages["v"]})["v"] - w)}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"v": position(since="w")}
