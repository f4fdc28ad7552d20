"""FedAMP: every client gets a mean of all models of its own, in which models like its own weigh most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import Sent, position
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree
from descant.methods.descent import Descent
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class FedAMP(Descent):
    """FedAMP (Huang et al., 2021), Algorithm 1: min sum_k f_k(w_k) + mu sum_{j<k} A(||w_k - w_j||^2).

    A(x) = 1 - exp(-x / sigma) ties clients that are alike, and hardly those that are not; `sigma` is the squared
    distance up to which two count as alike. The server holds the last w_k of every client and tells it
    u_k = w_k + sum_j xi_kj (w_j - w_k), xi_kj = alpha A'(||w_k - w_j||^2). The client goes down
    f_k(w) + lam/2 ||w - u_k||^2 from its own w_k, and sends what comes out. `lam` is mu / alpha; the paper's names
    for them are lambda and alpha_k. By default `alpha` is sigma / N, at which N equal models weigh the same: u_k is
    their mean. lam = sigma = 1 are the defaults of PFLlib, with an alpha of 1, at which a client's own model may
    weigh less than zero.

    A client hears and sends a model a round. The server looks at every model, so that an aggregator has no part.
    """

    name: ClassVar[str] = "fedamp"
    paper: ClassVar[str] = "Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    lam: float = 1.0
    sigma: float = 1.0
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "sigma", self.sigma > 0, "a positive number")
        require(self, "alpha", self.alpha is None or self.alpha >= 0, "zero or more, or nothing")

    def server_start(self, ctx: Context) -> Tree:
        others = ctx.clients - 1
        whole = self.alpha is None or self.alpha * others <= self.sigma
        require(self, "alpha", whole, f"at most sigma / {others}, or a client's own model may weigh less than zero")
        return {"w": ctx.x0.expand(ctx.clients, -1)}

    def client_start(self, local: LocalView) -> Tree:
        return {"w": local.start}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        w = server["w"]
        xi = self.attention(w)
        return {"u": PerClient(w + xi @ w - xi.sum(1, keepdim=True) * w)}

    def attention(self, w: Tensor) -> Tensor:
        """xi [N, N] for models w [N, d]; zero for a model and itself."""
        alpha = self.sigma / len(w) if self.alpha is None else self.alpha
        apart = torch.cdist(w, w, compute_mode="donot_use_mm_for_euclid_dist").square()
        return (alpha / self.sigma * (-apart / self.sigma).exp()).fill_diagonal_(0)

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w = local.run(self.step, state["w"], down["u"], work=self.work, role="personal")
        return {"w": w}, {"w": w}

    def step(self, w: Tensor, grad: Gradient, u: Tensor) -> Down:
        return self.down(w, self.slope(w, grad) + self.lam * (w - u))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"w": messages.into(server["w"], "w")}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["w"]

    @property
    def held(self) -> tuple[str, ...]:
        return ("w",)

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"w": position(since="u")}

    @property
    def refuses(self) -> Mapping[str, str]:
        return {
            "aggregator": "its server looks at every model, and combines none",
            "own_start": "the server takes clients that it has not heard to hold the common start",
        }
