"""Agnostic federated learning: one model for the worst mixture of the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.methods.base import Aggregate, LocalView, Messages, ServerView, Tree
from descant.methods.onemodel import OneModel
from descant.methods.simplex import onto_simplex


@dataclass(frozen=True, kw_only=True)
class AFL(OneModel):
    """AFL (Mohri et al., 2019), Stochastic-AFL: min_w max_lambda sum_k lambda_k f_k(w), lambda on the simplex.

    Descent in w, and projected ascent of the mixture lambda. `gamma` is the rate of the ascent, which the paper
    tunes; 0.01 is a choice, and with many clients, where lambda_k is about 1/N, less is better. Sends the update
    and the loss f_k(w) of the model that a round begins with. The mixture stays with the server. It holds the last
    w; the paper's bound is on the mean of all of them.

    `draw` says which S of the N clients take part, and how both gradients are estimated from them. "uniform": the
    run's cohort, with updates weighed by lambda_k N / S, and lambda_k rising by gamma f_k N / S. Over uniform
    cohorts neither is biased, and with everyone there is nothing to estimate. "mixture": a cohort drawn in
    proportion to lambda, without replacement; updates are averaged, and lambda_k rises by gamma f_k. That is meant
    for small cohorts, and a client of no weight is never drawn again.
    """

    name: ClassVar[str] = "afl"
    paper: ClassVar[str] = "Mohri et al. 2019, Agnostic Federated Learning"

    gamma: float = 0.01
    draw: Literal["uniform", "mixture"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "gamma", 0 <= self.gamma < float("inf"), "zero or more")
        require(self, "draw", self.draw in ("uniform", "mixture"), "'uniform' or 'mixture'")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "mixture": ctx.x0.new_full((ctx.clients,), 1 / ctx.clients)}

    def cohort_weights(self, server: ServerView) -> Tensor | None:
        return server["mixture"] if self.draw == "mixture" else None

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        risk = local.losses(down["w"])
        return {"delta": self.update(down, local), "risk": risk}, state

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mixture, each = server["mixture"], 1.0
        weights, total = None, 1.0
        if self.draw == "uniform":
            each = len(mixture) / len(messages.clients)
            weights = mixture[messages.clients]
            total = each * float(weights.sum())
        moved = total * aggregate({"delta": messages["delta"]}, weights=weights)["delta"] if total else 0.0
        raised = mixture.index_add(0, messages.clients, self.gamma * each * messages["risk"])
        return {"w": server["w"] + moved, "mixture": onto_simplex(raised)}

    @property
    def weighs(self) -> bool:
        return self.draw == "uniform"
