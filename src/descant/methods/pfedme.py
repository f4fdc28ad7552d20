"""pFedMe: personal models that are the proximal points of a shared model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, Tree
from descant.methods.bilevel import Bilevel, role_of
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class PFedMe(Bilevel):
    """pFedMe (Dinh et al., 2020), Algorithm 1: min_w mean_k min_x f_k(x) + lam/2 ||x - w||^2.

    Sends w_k. `lr` is the rate of the lower level, `eta` that of w, `R` the number of alternations a round, `beta`
    the weight of the new average. The lower level goes on from the client's last x; `reset` starts it from w in
    each round, as the authors' code does.
    """

    name: ClassVar[str] = "pfedme"
    paper: ClassVar[str] = "Dinh et al. 2020, Personalized Federated Learning with Moreau Envelopes"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    lam: float = 15.0
    eta: float = 0.005
    R: int = 1
    beta: float = 1.0
    reset: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "eta", self.eta > 0, "a positive number")
        require(self, "R", self.R >= 1, "a positive number")
        require(self, "beta", self.beta > 0, "a positive number")

    def server_start(self, x0: Tensor, clients: int, layout: Layout) -> Tree:
        return {"w": x0}

    def client_start(self, x: Tensor) -> Tree:
        return {"x": x}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w = down["w"]
        x = w if self.reset else state["x"]
        for r in range(self.R):
            x = self.minimise(self.slope_of_lower, x, w, local, role=role_of(r))
            w = w - self.eta * self.lam * (w - x)
        return {"w": w}, {"x": x}

    def slope_of_lower(self, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        return self.slope(x, grad) + self.lam * (x - w)

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"w": messages["w"]})
        return {"w": (1 - self.beta) * server["w"] + self.beta * mean["w"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]

    def shared(self, server: Tree) -> Tensor:
        return server["w"]
