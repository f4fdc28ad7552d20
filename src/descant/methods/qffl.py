"""q-FFL by q-FedAvg: one model for all, in which clients with larger losses count for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from descant.errors import require
from descant.methods.base import Aggregate, LocalView, Messages, ServerView, Tree
from descant.methods.onemodel import OneModel
from descant.methods.schedules import in_round


@dataclass(frozen=True, kw_only=True)
class QFFL(OneModel):
    """q-FFL (Li et al., 2020), solved by q-FedAvg, Algorithm 2: min_w mean_k f_k(w)^(q+1) / (q+1).

    `q` says how much more a larger loss counts. Losses must not be negative. `L` estimates the Lipschitz constant
    of the gradients, by default 1 / lr, as in the paper. With that, one full-batch step a round is q-FedSGD,
    Algorithm 1.

    Client k finds u = L (w - w_k). Sends f_k(w)^q u and the number h_k = q f_k(w)^(q-1) ||u||^2 + L f_k(w)^q. The
    server moves w by the sum of the vectors divided by the sum of the numbers. It does so as the mean, weighed by
    h_k, of what each client's own step would be, so that a robust aggregator that heeds weights can take the mean's
    place (others are refused); a message whose h_k is not positive, which no honest client sends, has no weight.

    The mean over clients is plain: with `sampling: size` a client counts by its examples, as in the paper. q = 0
    is FedAvg with the plain average (`weighted=False`), whatever L is, with the same cohort and under the mean;
    the bill has the number h_k more. q = 1 is the default, the paper's choice for half of its data sets.
    """

    name: ClassVar[str] = "q-ffl"
    paper: ClassVar[str] = "Li et al. 2020, Fair Resource Allocation in Federated Learning"

    q: float = 1.0
    L: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "q", 0 <= self.q < float("inf"), "zero or more")
        require(self, "L", self.L is None or self.L > 0, "a positive number, or nothing")

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        loss = local.losses(down["w"])  # f_k(w), [K]
        L = 1 / in_round(self.lr, local.round) if self.L is None else self.L
        u = -L * self.update(down, local)
        weight = loss.pow(self.q)
        # Where a loss is 0 so is its gradient, and f^(q-1) ||u||^2 tends to 0 with f^q.
        slope = self.q * torch.where(loss > 0, loss.pow(self.q - 1), 0.0)
        return {"delta": weight[:, None] * u, "h": slope * u.square().sum(1) + L * weight}, state

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        h = messages["h"].clamp(min=0)
        if not h.any():  # every loss is 0
            return {"w": server["w"]}
        own = messages["delta"] / torch.where(h > 0, h, torch.inf)[:, None]
        return {"w": server["w"] - aggregate({"delta": own}, weights=h)["delta"]}

    @property
    def weighs(self) -> bool:
        return self.q > 0
