"""lp-proj: personal models tied to a reference in a random subspace, by an L^p penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from torch import Tensor

from descant.coupling import Dense, Projection, Projector
from descant.errors import require
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, Tree, signed_power
from descant.methods.bilevel import Bilevel, role_of
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class LpProj(Bilevel):
    """lp-proj (Lin et al., 2022 and 2024), Algorithm 1: min_w mean_k min_x f_k(x) + lam/p ||w - P x||_p^p.

    P is a `dim` x d random matrix that every party derives from the seed. Sends w_k, `dim` numbers; there is no
    shared model, only the reference w. `lr` is the rate of the lower level, `eta` that of eq. (4), `R` the number
    of alternations a round, `beta` the weight of the new average.
    """

    name: ClassVar[str] = "lp-proj"
    paper: ClassVar[str] = "Lin et al. 2024, A Random Projection Approach to Personalized Federated Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    p: float = 1.0
    dim: int = 21
    lam: float = 1.0
    eta: float = 0.05
    R: int = 1
    beta: float = 1.0
    projection: Projection = field(default_factory=Dense)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "p", self.p >= 1, "1 or more")
        require(self, "dim", self.dim >= 0, "zero or more")
        require(self, "lam", self.lam >= 0, "zero or more")
        require(self, "eta", self.eta > 0, "a positive number")
        require(self, "R", self.R >= 1, "a positive number")
        require(self, "beta", self.beta > 0, "a positive number")

    def server_start(self, x0: Tensor, clients: int, layout: Layout) -> Tree:
        return {"w": x0.new_zeros(self.projection.dim(self.dim, len(x0)))}

    def client_start(self, x: Tensor) -> Tree:
        return {"x": x}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        x, w = state["x"], down["w"]
        P = self.projection.build(local.seed, self.dim, x)
        for r in range(self.R):
            x = self.minimise(partial(self.slope_of_3, P), x, w, local, role=role_of(r))
            w = w - self.eta * self.lam * signed_power(w - P.project(x), self.p - 1)  # eq. (4)
        return {"w": w}, {"x": x}

    def slope_of_3(self, P: Projector, x: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        """The gradient of eq. (3) in x."""
        return self.slope(x, grad) - self.lam * P.lift(signed_power(w - P.project(x), self.p - 1))

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"w": messages["w"]})
        return {"w": (1 - self.beta) * server["w"] + self.beta * mean["w"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["x"]
