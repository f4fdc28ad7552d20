"""Ditto: personal models tied to the model of any global solver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, Method, PerClient, Tree, Work
from descant.methods.descent import Descent
from descant.methods.fedavg import FedAvg
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class Ditto(Descent):
    """Ditto (Li et al., 2021), Algorithm 1: min_v f_k(v) + lam/2 ||v - w*||^2, with w* from any global solver.

    Sends what the solver sends; v never leaves the client. lam = 0 is local training.
    """

    name: ClassVar[str] = "ditto"
    paper: ClassVar[str] = "Li et al. 2021, Ditto: Fair and Robust Federated Learning Through Personalization"
    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True
    default_work: ClassVar[Work] = Work(steps=20)

    lam: float = 1.0
    lr: float = 0.05
    solver: Method = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")
        solves = self.solver.has_shared and self.solver.trains == ("shared",)
        require(self, "solver", solves, "a method that trains a shared model, and no personal one")

    def server_start(self, x0: Tensor, clients: int, layout: Layout) -> Tree:
        return self.solver.server_start(x0, clients, layout)

    def client_start(self, x: Tensor) -> Tree:
        return self.solver.client_start(x) | {"v": x}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return self.solver.broadcast(server)

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        message, solved = self.solver.client(down, {k: s for k, s in state.items() if k != "v"}, local)
        v = local.run(self.step, state["v"], down["w"], work=self.work, role="personal")
        return message, solved | {"v": v}

    def step(self, v: Tensor, grad: Gradient, w: Tensor) -> Tensor:  # line 6
        return v - self.lr * (self.slope(v, grad) + self.lam * (v - w))

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return self.solver.server(server, messages, aggregate)

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]

    def shared(self, server: Tree) -> Tensor:
        return self.solver.shared(server)

    @property
    def held(self) -> tuple[str, ...]:
        return self.solver.held

    @property
    def drops_stragglers(self) -> bool:
        return self.solver.drops_stragglers

    def cohort_weights(self, server: Tree) -> Tensor | None:
        return self.solver.cohort_weights(server)

    def silent(self, server: Tree, round: int, coin: float) -> bool:
        return self.solver.silent(server, round, coin)
