"""Methods that add something to a global solver and leave the rest to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from descant.errors import require
from descant.methods.base import Aggregate, Messages, Method, PerClient, Tree
from descant.methods.descent import Descent
from descant.methods.fedavg import FedAvg
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class OverSolver(Descent):
    """Personal models beside the shared one of `solver`, which travels, is combined and is drawn for as it says."""

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    solver: Method = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        super().__post_init__()
        solves = self.solver.has_shared and self.solver.trains == ("shared",)
        require(self, "solver", solves, "a method that trains a shared model, and no personal one")

    def server_start(self, x0: Tensor, clients: int, layout: Layout) -> Tree:
        return self.solver.server_start(x0, clients, layout)

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return self.solver.broadcast(server)

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return self.solver.server(server, messages, aggregate)

    def shared(self, server: Tree) -> Tensor:
        return self.solver.shared(server)

    @property
    def held(self) -> tuple[str, ...]:
        return self.solver.held

    @property
    def drops_stragglers(self) -> bool:
        return self.solver.drops_stragglers

    @property
    def unbounded(self) -> tuple[str, ...]:
        return self.solver.unbounded

    def cohort_weights(self, server: Tree) -> Tensor | None:
        return self.solver.cohort_weights(server)

    def silent(self, server: Tree, round: int, coin: float) -> bool:
        return self.solver.silent(server, round, coin)
