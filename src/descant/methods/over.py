"""Methods that add something to a global solver and leave the rest to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from descant.context import Context
from descant.errors import require
from descant.mail import Sent
from descant.methods.base import Aggregate, LocalView, Messages, Method, PerClient, Rounding, ServerView, Tree
from descant.methods.descent import Descent
from descant.methods.fedavg import FedAvg
from descant.task import Layout
from descant.trees import under, within


@dataclass(frozen=True, kw_only=True)
class OverSolver(Descent):
    """Personal models beside the shared model of a `solver`.

    The solver decides everything about the shared model: what is sent, how the server combines it, and which
    clients take part in a round.
    """

    trains: ClassVar[tuple[str, ...]] = ("shared", "personal")
    has_shared: ClassVar[bool] = True
    personalizes: ClassVar[bool] = True

    solver: Method = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        super().__post_init__()
        solver = self.solver
        solves = solver.has_shared and solver.trains == ("shared",) and not solver.personalizes
        require(self, "solver", solves, "a method that trains a shared model, and no personal one")

    def check_run(self, rounds: int, layout: Layout) -> None:
        self.solver.check_run(rounds, layout)

    def server_start(self, ctx: Context) -> Tree:
        return self.solver.server_start(ctx)

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return self.solver.broadcast(server)

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return self.solver.server(server, messages, aggregate)

    def shared(self, server: ServerView) -> Tensor:
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

    def cohort_weights(self, server: ServerView) -> Tensor | None:
        return self.solver.cohort_weights(server)

    def silent(self, server: ServerView) -> bool | Literal["up", "down"]:
        return self.solver.silent(server)

    def reply(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return self.solver.reply(server)

    def hear(self, reply: Tree, state: Tree, local: LocalView) -> Tree:
        return state | self.keep(self.solver.hear(reply, self.solvers(state), local))

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        return self.solver.fetches(down, self.solvers(state), local)

    def judged(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return self.solver.judged(down, self.solvers(state), local)

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return self.solver.needs

    @property
    def sends(self) -> Mapping[str, Sent]:
        return self.solver.sends

    @property
    def rounding(self) -> Rounding | None:
        return self.solver.rounding

    def first_sent(self, ctx: Context) -> Tree:
        return self.solver.first_sent(ctx)

    @property
    def turns(self) -> bool:
        return self.solver.turns

    @property
    def weighs(self) -> bool:
        return self.solver.weighs

    @property
    def refuses(self) -> Mapping[str, str]:
        return self.solver.refuses

    def solvers(self, state: Tree) -> Tree:
        """The solver's part of a client's state."""
        return within("solver", state)

    def keep(self, solved: Tree) -> Tree:
        """The solver's part, as it lies in a client's state."""
        return under("solver", solved)
