"""A shared model that moves in a subspace drawn anew in each round: only coordinates travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling import Dense, Form, Projection
from descant.methods import Aggregate, Descent, Gradient, LocalView, Messages, PerClient, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class Subspace(Descent):
    """w = x0 + sum_t P_t' u_t with P_t a `dim` x d matrix that all parties draw for round t, u_t the mean of u_k.

    The server tells the log of all u_t. A client keeps its own w and how much of the log it has built in: it
    fetches, and is billed for, the rows that are new to it.
    """

    name: ClassVar[str] = "subspace"
    paper: ClassVar[str] = "none"
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False

    dim: int = 1
    projection: Projection = field(default_factory=lambda: Dense(fresh=True))

    def server_start(self, ctx: Context) -> Tree:
        return {"log": ctx.x0.new_zeros(0, self.dim)}

    def client_start(self, local: LocalView) -> Tree:
        return {"w": local.start, "known": torch.zeros_like(local.n)}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"log": self.upto(server.ctx.round - 1, server["log"])}

    def upto(self, rounds: int, log: Tensor) -> Tensor:
        """The log with a row for each of so many rounds: in one without mail, nothing moved."""
        return torch.cat([log, log.new_zeros(max(0, rounds - len(log)), self.dim)])

    def build(self, w: Tensor, known: Tensor, log: Tensor, ctx: Context) -> Tensor:
        """w [K, d] with the rows of the log [K, t, dim] that come after the `known` [K] ones."""
        for t in range(int(known.min()), log.shape[1]):
            P = self.projection.drawn(ctx.at(t + 1), self.dim, w)
            w = w + torch.where(known[:, None] <= t, P.lift(log[:, t]), 0)
        return w

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        log = down["log"]
        w = self.build(state["w"], state["known"], log, local.ctx)
        P = self.projection.drawn(local.ctx, self.dim, w)
        step, u = partial(self.step, P.form), w.new_zeros(len(w), self.dim)
        u = local.run(step, u, w, *P.rows(len(w)), work=self.work, role="shared")
        return {"u": u}, {"w": w, "known": torch.full_like(state["known"], log.shape[1])}

    def step(self, form: Form, u: Tensor, grad: Gradient, w: Tensor, *rows: Tensor) -> Tensor:
        P = form.of(rows)
        return u - self.lr * P.project(self.slope(w + P.lift(u), grad))

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        return {"log": down["log"].shape[1] - state["known"]}

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        before = self.upto(server.ctx.round - 1, server["log"])
        return {"log": torch.cat([before, aggregate(messages)["u"][None]])}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return self.build(state["w"], state["known"], down["log"], local.ctx)

    def shared(self, server: ServerView) -> Tensor:
        ctx, none = server.ctx, torch.zeros(1, dtype=torch.int64, device=server["log"].device)
        return self.build(ctx.x0[None], none, server["log"][None], ctx)[0]
