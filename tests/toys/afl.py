"""Agnostic federated learning (Mohri et al., 2019): the worst mixture of the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.methods import Aggregate, FedAvg, LocalView, Messages, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class AFL(FedAvg):
    """min_w max_lambda sum_k lambda_k f_k(w): descent in w, projected ascent of lambda on the simplex.

    The cohort is drawn in proportion to lambda: a client of no weight is never drawn again. `gamma` is the rate of
    the ascent.
    """

    name: ClassVar[str] = "afl"
    paper: ClassVar[str] = "Mohri et al. 2019, Agnostic Federated Learning"

    gamma: float = 0.1
    weighted: bool = False

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "mixture": ctx.x0.new_full((ctx.clients,), 1 / ctx.clients)}

    def cohort_weights(self, server: ServerView) -> Tensor | None:
        return server["mixture"]

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        loss = local.losses(down["w"])
        message, state = super().client(down, state, local)
        return message | {"risk": loss}, state

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mixture = server["mixture"].index_add(0, messages.clients, self.gamma * messages["risk"])
        moved = aggregate({"delta": messages["delta"]})["delta"]
        return {"w": server["w"] + moved, "mixture": onto_simplex(mixture)}


def onto_simplex(y: Tensor) -> Tensor:
    """The point of the simplex that is nearest to y (Duchi et al., 2008)."""
    down = y.sort(descending=True).values
    over = (down.cumsum(0) - 1) / torch.arange(1, len(y) + 1, device=y.device)
    return (y - over[down > over][-1]).clamp(min=0)
