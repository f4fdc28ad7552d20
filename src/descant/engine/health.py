"""Federation health (Fed+, Kundu et al., 2022, section 3): what an aggregation does to the clients' models."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from descant.context import Context
from descant.engine.links import Broadcast
from descant.engine.measure import mean_loss
from descant.engine.records import HealthRecord
from descant.errors import require
from descant.execution.batches import Rows
from descant.fields import Checked
from descant.mirrors import host
from descant.trees import Tree

if TYPE_CHECKING:
    from descant.engine.clients import Clients
    from descant.engine.server import Server
    from descant.engine.view import View

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class Health(Checked):
    """Look at what the aggregation does to the clients' models: after every so many `rounds`, or in those listed.

    A client's local model is the one that it holds after its work (`Method.trained`). The aggregate is the shared
    model after the server's step or, where a method has none, what the client's next work starts from
    (`Method.resumes`). Three things are recorded of every client that worked in the round:

    - its jump ||next - local||, where next is what its next work starts from (Figure 1 of Fed+). It is 0 where a
      client goes on from its own model;
    - its distance ||aggregate - local||, which is the jump where everyone starts from the shared model as it is;
    - its loss on a `part` of its data at some `points` of the line (1 - theta) local + theta aggregate (Figure 3),
      and that of the model which its work began with (the figure's dashed line).

    Nothing of the training changes by it. What it computes is on nobody's bill.
    """

    rounds: int | tuple[int, ...] = 10
    points: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    part: str = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rounds, tuple):
            right = len(self.rounds) > 0 and min(self.rounds) >= 1 and len(set(self.rounds)) == len(self.rounds)
            require(self, "rounds", right, "different rounds from 1 on")
        else:
            require(self, "rounds", self.rounds >= 1, "a positive number of rounds, or a list of rounds")
        rise = len(self.points) > 0 and all(a < b for a, b in pairwise(self.points))
        within = rise and self.points[0] >= 0 and self.points[-1] <= 1
        require(self, "points", within, "numbers from 0 to 1 that rise")
        require(self, "part", self.part in PARTS, f"one of {PARTS}")

    def due(self, round: int) -> bool:
        return round in self.rounds if isinstance(self.rounds, tuple) else round % self.rounds == 0


@dataclass(frozen=True)
class _Lot:
    """The clients who worked at once: their local models and those that they began with, with statistics [K, b]."""

    who: Tensor  # [K]
    x: Tensor  # [K, d]
    statistics: Tensor
    began: Tensor  # [K, d]
    first: Tensor  # the statistics that it began with


class Checkup:
    """One round, looked at: `worked` sees the clients at their work, and `record` what came of the aggregation."""

    def __init__(self, health: Health, ctx: Context, clients: Clients, server: Server, down: Broadcast) -> None:
        self.health, self.ctx, self.clients, self.server, self.down = health, ctx, clients, server, down
        self._lots: list[_Lot] = []

    def worked(self, who: Tensor, seen: Tree, state: Tree, local: View) -> None:
        """The clients `who` have worked: `state` is their new one, and their store still holds the old one."""
        x = self._models("trained", self.clients.method.trained(seen, state, local), who)
        before, view = self.clients.resumes(self.ctx, who, self.down)
        began = self._models("resumes", before, who)
        # Where memory did not suffice, the same clients work once more.
        self._lots = [lot for lot in self._lots if not bool(torch.isin(host(lot.who), host(who)).any())]
        self._lots.append(_Lot(who, x, local.statistics(local.last), began, view.statistics(local.last)))

    def record(self, down: Broadcast) -> HealthRecord:
        """What the aggregation did; `down` is the broadcast after it."""
        malicious = self.clients.plan.malicious
        who = torch.cat([lot.who for lot in self._lots])
        found = [self._line(lot, down) for lot in self._lots]
        jump, distance, loss = (torch.cat(column).cpu() for column in zip(*found, strict=True))
        return HealthRecord(
            round=self.ctx.round,
            clients=who.cpu(),
            counted=~torch.isin(who.cpu(), malicious.cpu()),
            jump=jump,
            distance=distance,
            began=torch.cat([self._loss(lot.began, lot.first, lot.who) for lot in self._lots]).cpu(),
            points=torch.tensor(self.health.points, dtype=torch.float64),
            loss=loss,
        )

    def _line(self, lot: _Lot, down: Broadcast) -> tuple[Tensor, Tensor, Tensor]:
        """The jumps [K], the distances [K], and the losses [K, P] along the lines of some clients."""
        after, view = self.clients.resumes(self.ctx, lot.who, down)
        after, end, statistics = self._models("resumes", after, lot.who), after, view.statistics("personal")
        if self.clients.method.has_shared:
            end, common = (row.expand(len(lot.who), -1) for row in self.server.shared(self.ctx))
            own = self.clients.task.buffers == "local"  # every client predicts with its own running statistics
            statistics = view.statistics("shared") if own else common
        loss = [
            self._loss(between(lot.x, end, theta), between(lot.statistics, statistics, theta), lot.who)
            for theta in self.health.points
        ]
        return _length(after - lot.x), _length(end - lot.x), torch.stack(loss, 1)

    def _loss(self, x: Tensor, statistics: Tensor, who: Tensor) -> Tensor:
        data = self.clients.data
        rows = Rows(data.part(self.health.part), who, data.places(who))
        return mean_loss(self.clients.execution, x, statistics, rows)

    def _models(self, hook: str, x: Tensor, who: Tensor) -> Tensor:
        shape = (len(who), self.ctx.layout.dim)
        if tuple(x.shape) != shape:
            method = type(self.clients.method).__name__
            raise ValueError(f"{method}.{hook} gave {tuple(x.shape)}: it must give whole models, {shape}")
        return x


def between(a: Tensor, b: Tensor, theta: float) -> Tensor:
    """(1 - theta) a + theta b, which is a at 0 and b at 1, to the last bit and whatever the other holds."""
    return a if theta == 0 else b if theta == 1 else (1 - theta) * a + theta * b


def _length(x: Tensor) -> Tensor:
    """||x_k|| [K] of rows [K, d], in float64."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    return length
