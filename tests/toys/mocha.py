"""MOCHA (Smith et al., 2017): a task for every client, solved in the dual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.mail import Sent, difference
from descant.methods import Aggregate, LocalView, Messages, Method, PerClient, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class Mocha(Method):
    """Ridge regressions w_k = sum_j M_kj v_j with v_j = sum_i alpha_ji x_ji, by dual ascent of one coordinate after
    the other.

    A client holds a dual for each of its examples, and is told its own w_k alone. M = (1 - tie) I + tie 11'/N over
    `lam` ties the tasks.
    """

    name: ClassVar[str] = "mocha"
    paper: ClassVar[str] = "Smith et al. 2017, Federated Multi-Task Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    lam: float = 1.0
    tie: float = 0.5

    def server_start(self, ctx: Context) -> Tree:
        return {"v": ctx.x0.new_zeros(ctx.clients, len(ctx.x0))}

    def client_start(self, local: LocalView) -> Tree:
        return {"alpha": local.start.new_zeros(len(local.n), local.largest)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        v = server["v"]
        return {"w": PerClient(((1 - self.tie) * v + self.tie * v.mean(0)) / self.lam)}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        own = (1 - self.tie + self.tie / local.ctx.clients) / self.lam  # M_kk
        batch, w, alpha = local.part("train"), down["w"], state["alpha"].clone()
        dv = torch.zeros_like(w)
        for i in range(batch.mask.shape[1]):
            x, y = batch.inputs[:, i], batch.targets[:, i].view(-1)
            step = (y - (x * (w + own * dv)).sum(1) - alpha[:, i]) / (1 + own * x.square().sum(1))
            step = torch.where(batch.mask[:, i], step, 0)
            alpha[:, i] += step
            dv = dv + step[:, None] * x
        return {"dv": dv}, {"alpha": alpha}

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"v": server["v"].index_add(0, messages.clients, messages["dv"])}

    @property
    def held(self) -> tuple[str, ...]:
        return ("v",)

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"dv": difference(of="w")}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]
