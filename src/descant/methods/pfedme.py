"""pFedMe: personal models that are the proximal points of a shared model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.context import Context
from descant.methods.base import Gradient, LocalView, ServerView, Tree
from descant.methods.bilevel import Bilevel, role_of
from descant.methods.schedules import ByRound, in_round


@dataclass(frozen=True, kw_only=True)
class PFedMe(Bilevel):
    """pFedMe (Dinh et al., 2020), Algorithm 1: min_w mean_k min_x f_k(x) + lam/2 ||x - w||^2.

    Sends w_k. The lower level goes on from the client's last x; `reset` starts it from w in each round, as the
    authors' code does.
    """

    name: ClassVar[str] = "pfedme"
    paper: ClassVar[str] = "Dinh et al. 2020, Personalized Federated Learning with Moreau Envelopes"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    lam: float = 15.0
    eta: float | ByRound = 0.005
    reset: bool = False

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, eta = down["w"], in_round(self.eta, local.round)
        x = self.resumes(down, state, local)
        for r in range(self.R):
            x = self.minimise(self.slope_of_lower, x, w, local, role=role_of(r))
            w = w - eta * self.lam * (w - x)
        return self.message(w, local), {"x": x}

    def resumes(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"] if self.reset else state["x"]

    def slope_of_lower(self, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        return self.slope(x, grad) + self.lam * (x - w)

    def shared(self, server: ServerView) -> Tensor:
        return server["w"]
