"""SCAFFOLD (Karimireddy et al., 2020), Algorithm 1 with option II."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.context import Context
from descant.mail import Sent, difference
from descant.methods import Aggregate, Descent, Gradient, LocalView, Messages, PerClient, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class Scaffold(Descent):
    """c_k <- c_k - c + (w - x) / (s lr), with s the steps that client k really took."""

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al. 2020, SCAFFOLD"
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False
    needs: ClassVar[Literal["sums", "rows"]] = "rows"  # how many sent

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "c": torch.zeros_like(ctx.x0)}

    def client_start(self, local: LocalView) -> Tree:
        return {"c_k": torch.zeros_like(local.start)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"], "c": server["c"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, c, c_k = down["w"], down["c"], state["c_k"]
        none = torch.zeros_like(w[:, :1])
        x, taken = local.run(self.step, (w, none), c - c_k, work=self.work, role="shared")
        new = c_k - c + (w - x) / (taken * self.lr)
        return {"dw": x - w, "dc": new - c_k}, {"c_k": new}

    def step(self, x: tuple[Tensor, Tensor], grad: Gradient, correction: Tensor) -> tuple[Tensor, Tensor]:
        y, taken = x
        return y - self.lr * (grad(y) + correction), taken + 1

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean, share = aggregate(messages), len(messages.clients) / server.ctx.clients
        return {"w": server["w"] + mean["dw"], "c": server["c"] + share * mean["dc"]}

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"dw": difference(of="w"), "dc": difference(of="c")}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]
