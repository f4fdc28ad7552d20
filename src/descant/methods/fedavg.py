"""FedAvg and FedProx: one model for all, trained by averaging the clients' updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, ServerView, Tree
from descant.methods.onemodel import OneModel
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class FedAvg(OneModel):
    """FedAvg (McMahan et al., 2017), Algorithm 1: w <- w + sum_k (n_k / n) (w_k - w).

    Sends the update w_k - w and, for the weighted average, the number of examples n_k. `weighted=False` takes the
    plain average, and sends no n_k. A straggler's partial work is dropped, as in the comparisons of FedProx, or
    kept.
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks"

    weighted: bool = True

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        message = {"delta": self.update(down, local)}
        return (message | {"n": local.n.to(torch.int32)} if self.weighted else message), state

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"delta": messages["delta"]}, weights=messages.get("n"))
        return {"w": server["w"] + mean["delta"]}

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedProx (Li et al., 2020), Algorithm 2: client k minimises f_k(x) + mu/2 ||x - w||^2 inexactly.

    `mu` holds clients near w: mu = 0 is FedAvg. Sends what FedAvg sends; the partial work of stragglers is kept.
    """

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al. 2020, Federated Optimization in Heterogeneous Networks"

    mu: float = 1.0
    stragglers: Literal["drop", "keep"] = "keep"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "mu", self.mu >= 0, "zero or more")

    def step(self, x: Tensor, grad: Gradient, w: Tensor) -> Down:
        return self.down(x, self.slope(x, grad) + self.mu * (x - w))
