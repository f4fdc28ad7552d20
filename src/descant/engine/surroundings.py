"""What all rounds of a run share: the execution, the data, and the minibatches that they draw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from descant.context import Context
from descant.data import FederatedData
from descant.engine.cohort import finished_share
from descant.engine.unread import later
from descant.execution import Compile, Execution
from descant.execution.batches import Counts, Rows, Schedule
from descant.methods import Work
from descant.mirrors import host

_KEPT = 8  # kinds of work that counts are kept of


def roles(role: str, draws: int) -> list[str]:
    """What addresses the minibatches of a run of steps that sees several at each."""
    return [role, *(f"{role}#{i}" for i in range(1, draws))]


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What every view of a run shares."""

    execution: Execution
    data: FederatedData
    stragglers: float = 0.0
    drop_last: bool = False
    own_start: bool = False
    kept: dict[Any, tuple[Rows, Counts, Tensor]] = field(default_factory=dict, repr=False)  # of clients at work
    counted: dict[Any, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)  # their examples
    ahead: dict[Any, Schedule] = field(default_factory=dict, repr=False)  # minibatches that were drawn ahead

    def schedule(self, clients: Tensor, work: Work, address: tuple[int, str, int]) -> Schedule:
        """The minibatches of clients in a role and a round; those that were drawn ahead are taken as they are."""
        asked = (id(clients), work, address)
        if (drawn := self.ahead.pop(asked, None)) is not None:
            return drawn
        seed, _, round = address
        share = finished_share(seed, round, host(clients), self.stragglers)
        batch = work.batch_in(max(1, round))
        rows, counts = self._about(clients, work, batch)
        draws, few = self.execution.task.draws, isinstance(self.execution, Compile)
        return Schedule(rows, work, share, address, self.drop_last, draws, few, counts)

    def _about(self, clients: Tensor, work: Work, batch: int | None) -> tuple[Rows, Counts]:
        key = (id(clients), id(self.data), work, batch)
        if key not in self.kept:
            rows = Rows(self.data.train, clients, self.data.places(clients))
            while len(self.kept) >= _KEPT:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = rows, Counts(rows, work, batch, self.drop_last), clients  # which keeps its id its own
        rows, counts, _ = self.kept[key]
        return rows, counts

    def sizes(self, clients: Tensor) -> Tensor:
        """How many examples clients train on [K], where they are trained. A copy would wait for a GPU at work."""
        key = (id(clients), id(self.data))
        if key in self.counted:
            return self.counted[key][0]
        there = Rows(self.data.train, clients, self.data.places(clients)).sizes.to(
            clients.device, non_blocking=True
        )
        if later(clients):
            while len(self.counted) >= _KEPT:
                del self.counted[next(iter(self.counted))]
            self.counted[key] = there, clients  # which keeps its id its own
        return there

    def draw_ahead(self, runs: list[tuple[str, Work, int]], clients: Tensor, ctx: Context) -> None:
        """Draw the minibatches that clients will need if they work as they did, while a GPU is busy otherwise."""
        self.ahead.clear()
        for role, work, draws in runs:
            for each in roles(role, draws):
                address = (ctx.seed, each, ctx.round)
                schedule = self.schedule(clients, work, address)
                if not schedule.full:
                    schedule.window(0)
                self.ahead[id(clients), work, address] = schedule

    def names(self, clients: Tensor) -> list[str]:
        """The names of clients, in quotes."""
        return [f"'{self.data.clients[place]}'" for place in self.data.places(clients).tolist()]
