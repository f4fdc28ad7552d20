"""FedMGDA+: one model for all, which moves in a direction that is good for every client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Messages, ServerView, Tree
from descant.methods.fedavg import FedAvg
from descant.methods.schedules import ByRound, in_round
from descant.methods.simplex import shortest_mixture


@dataclass(frozen=True, kw_only=True)
class FedMGDA(FedAvg):
    """FedMGDA+ (Hu et al., 2020), Algorithm 1: w <- w + server_lr d, d the shortest mixture of normalised updates.

    d = sum_k lambda_k u_k with u_k = (w_k - w) / ||w_k - w||, lambda on the simplex and |lambda_k - p_k| at most
    `epsilon`. epsilon = 1 is MGDA: <u_k, d> >= ||d||^2 for every client k of the cohort, so that d descends for
    all of them, unless it is 0, where nothing does (a Pareto-stationary point). epsilon = 0 is FedAvg with
    normalised updates. `weighted` makes p_k = n_k / n; otherwise it is 1/S.

    `server_lr` bounds the length of a move, and may depend on the round: the paper lets it decay. An `epsilon` of
    0.1 is the default of the code of FedMDFG's authors (Pan et al., 2023), who compare with it. lambda is found
    up to a duality gap of `tol`, or as far as `cap` iterations and rounding allow. The gap left is reported.
    Sends what FedAvg sends. There is no place for another aggregator than the mean, which is refused.
    """

    name: ClassVar[str] = "fedmgda+"
    paper: ClassVar[str] = "Hu et al. 2020, FedMGDA+: Federated Learning meets Multi-objective Optimization"

    epsilon: float = 0.1
    server_lr: float | ByRound = 1.0
    tol: float = 1e-12
    cap: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "epsilon", 0 <= self.epsilon <= 1, "from 0 to 1")
        rate = isinstance(self.server_lr, ByRound) or self.server_lr > 0
        require(self, "server_lr", rate, "a positive number")
        require(self, "tol", self.tol > 0, "a positive number")
        require(self, "cap", self.cap >= 1, "a positive number")

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        delta = messages["delta"]
        length = torch.linalg.vector_norm(delta, dim=1, keepdim=True)
        unit = delta / torch.where(length > 0, length, 1.0)
        weights = self.mixture(unit, messages)
        direction = aggregate({"delta": unit}, weights=weights)["delta"]
        return {"w": server["w"] + in_round(self.server_lr, server.ctx.round) * direction}

    def mixture(self, unit: Tensor, messages: Messages) -> Tensor:
        """lambda [S], from the normalised updates [S, d]."""
        n = messages["n"].double() if self.weighted else torch.ones_like(unit[:, 0], dtype=torch.float64)
        p, wide = n / n.sum(), unit.double()
        low, high = (p - self.epsilon).clamp(min=0), (p + self.epsilon).clamp(max=1)
        found = shortest_mixture(wide @ wide.T, low, high, self.tol, self.cap)
        messages.record("mixture_gap", found.gap)
        messages.record("mixture_iterations", found.iterations)
        return found.weights

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "rows"

    @property
    def refuses(self) -> Mapping[str, str]:
        return {"aggregator": "it weighs messages itself, so that together they help everyone"}
