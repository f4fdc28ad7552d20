"""FedAvg and FedProx: one model for all, trained by averaging the clients' updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import Sent, difference
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree
from descant.methods.descent import Descent
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class FedAvg(Descent):
    """FedAvg (McMahan et al., 2017), Algorithm 1: w <- w + sum_k (n_k / n) (w_k - w).

    Sends the update w_k - w and, for the weighted average, the number of examples n_k (`weighted=False`: the plain
    average, and no n_k). A straggler's partial work is dropped, as in the comparisons of FedProx, or kept.
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks"
    trains: ClassVar[tuple[str, ...]] = ("shared",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = False

    weighted: bool = True
    stragglers: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "stragglers", self.stragglers in ("drop", "keep"), "'drop' or 'keep'")

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return self.message(self.train(down["w"], local) - down["w"], local), state

    def train(self, w: Tensor, local: LocalView) -> Tensor:
        """The local work of a round, from w [K, d]."""
        return local.run(self.step, w, w, work=self.work, role="shared")

    def message(self, delta: Tensor, local: LocalView) -> Tree:
        return {"delta": delta} | ({"n": local.n.to(torch.int32)} if self.weighted else {})

    def step(self, x: Tensor, grad: Gradient, w: Tensor) -> Down:
        return self.down(x, self.slope(x, grad))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"delta": messages["delta"]}, weights=messages.get("n"))
        return {"w": server["w"] + mean["delta"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"delta": difference(of="w")}

    @property
    def drops_stragglers(self) -> bool:
        return self.stragglers == "drop"


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedProx (Li et al., 2020), Algorithm 2: client k minimises f_k(x) + mu/2 ||x - w||^2 inexactly.

    Sends what FedAvg sends; the partial work of stragglers is kept. mu = 0 is FedAvg.
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
