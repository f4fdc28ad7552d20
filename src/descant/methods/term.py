"""TERM: one model for all, by a mean of the clients that is tilted towards the larger losses."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

from descant.errors import require
from descant.methods.base import Aggregate, LocalView, Messages, ServerView, Tree
from descant.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class TERM(FedAvg):
    """TERM (Li et al., 2021), with clients as groups: min_w 1/t log sum_k (n_k / n) exp(t f_k(w)).

    The gradient is a mean of the clients' own with weights p_k in proportion to n_k exp(t f_k(w)) (the paper's
    Lemma 1). Here updates take the place of gradients: w <- w + sum_k p_k (w_k - w), with f_k(w) the loss on all
    local data before the round's work, and p_k normalised over the cohort. That is the federated TERM of Ditto's
    comparisons, but for n_k. `weighted=False` leaves n_k out, as Ditto's do. Within a client losses are not tilted
    (tau = 0).

    `t` is the tilt: 1 by default; Ditto's comparisons have 1, 2 and 5. t = 0 is FedAvg. As t grows, the client
    with the largest loss of a cohort is left alone; a negative t turns from outliers to the smallest losses. Sends
    what FedAvg sends and f_k(w).
    """

    name: ClassVar[str] = "term"
    paper: ClassVar[str] = "Li et al. 2021, Tilted Empirical Risk Minimization"

    t: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "t", isfinite(self.t), "a number")

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        risk = local.losses(down["w"])
        message, state = super().client(down, state, local)
        return message | {"risk": risk}, state

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        tilted = self.t * messages["risk"]
        weights = (tilted - tilted.max()).exp()  # in proportion, and none overflows
        if self.weighted:
            weights = weights * messages["n"]
        return {"w": server["w"] + aggregate({"delta": messages["delta"]}, weights=weights)["delta"]}

    @property
    def weighs(self) -> bool:
        return self.t != 0

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "rows"
