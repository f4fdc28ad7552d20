"""A federation in one process: rounds, evaluations, and what is needed to go on after an interruption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import randbits

import torch
from torch import Tensor

from descant.context import Context
from descant.data import FederatedData
from descant.engine.attackers import Attackers
from descant.engine.clients import Clients
from descant.engine.evaluation import Sees, evaluate
from descant.engine.newcomers import Newcomers, check
from descant.engine.plan import Plan
from descant.engine.records import (
    Account,
    Collapse,
    CollapseError,
    Evaluated,
    HealthRecord,
    RoundRecord,
    Snapshot,
)
from descant.engine.round import Round
from descant.engine.server import Server
from descant.execution import Execution
from descant.execution.tuning import at_once
from descant.methods import Method
from descant.state import ClientStore, Journaled
from descant.trees import under, within, without

Record = RoundRecord | HealthRecord | Evaluated | Account | Collapse


class Simulation:
    """A federation in one process. `run` yields what is to be reported, round by round.

    With a `folder` the clients' state is memory-mapped there; it then changes only by `settle`, after every round.
    `order` are the numbers that everyone, the newcomers last, has in what is reported.
    """

    def __init__(
        self,
        execution: Execution,
        data: FederatedData,
        method: Method,
        plan: Plan,
        trained_at_once: int,
        folder: Path | None = None,
        newcomers: FederatedData | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        plan.check(method)
        self.execution, self.method, self.plan, self.task = execution, method, plan, execution.task
        device = data.train.inputs.device
        self.everyone = torch.arange(len(data), device=device)
        self.x0 = self.task.start().to(device)
        self.round = 0
        self.last = plan.rounds  # the round to end with
        self.secret = randbits(62) if plan.secret is None else plan.secret
        start, self.attackers = self.context(0), Attackers(plan.attacks, plan.malicious.to(device))
        data = self.attackers.poison(start, data)
        self.server = Server(start, execution, method, plan, data.train.sizes, folder and folder.parent)
        told = self.server.broadcast(start)
        self.clients = Clients(start, execution, data, method, plan, told, folder)
        self.newcomers: Newcomers | None = None
        self._places = None if order is None else torch.tensor(order, device=device).argsort()
        if newcomers is not None:
            check(method, self.server, start)
            self.newcomers = Newcomers(start, execution, newcomers, method, plan, told)
        self.ledger = self.clients.ledger
        self.rounds = Round(self.clients, self.server, plan, trained_at_once, self.attackers)
        self._begun_with = trained_at_once
        self.sees: Sees | None = None  # whoever wants to see the models that are evaluated
        self.evaluated_at_once = plan.chunk or at_once(self.task, data, None, len(data), least=1)

    @property
    def data(self) -> FederatedData:
        """What the clients hold, as attackers have poisoned it."""
        return self.clients.data

    @property
    def store(self) -> ClientStore:
        """What the clients hold."""
        return self.clients.store

    @property
    def stores(self) -> dict[str, Journaled]:
        """Everything that holds rows of clients, by the name of its folder."""
        return {"clients": self.clients.store, "held": self.server.held, "copies": self.server.copies}

    def context(self, round: int) -> Context:
        """Where the parties of a round stand."""
        plan = self.plan
        return Context(round, plan.seed, len(self.everyone), self.task.layout, self.x0, self.secret)

    def run(self) -> Iterator[Record]:
        """Train up to the planned rounds, until the federation collapses, or until somebody calls `stop`.

        A round's evaluation comes after its own record, and before that of the next round: whoever restores a
        snapshot of a round gets the evaluation again. Its health cannot be had again, and comes before its record.
        """
        while True:
            if self.plan.evaluation.due(self.round, self.last):
                ctx, at_once = self.context(self.round), self.evaluated_at_once
                others = (self.newcomers, self.sees, self.attackers.probe)
                records = evaluate(ctx, self.clients, self.server, at_once, *others)
                yield from records if self._places is None else (record.at(self._places) for record in records)
            if self.round >= self.last:
                return
            self.round += 1
            try:
                record, health = self.rounds.play(self.context(self.round))
            except CollapseError as error:
                yield Collapse(self.round, str(error))
                return
            if health is not None:
                yield health if self._places is None else health.at(self._places)
            yield record

    def stop(self) -> None:
        """End with the round that was played last; it is evaluated, as a last round is."""
        self.last = self.round

    def snapshot(self) -> Snapshot:
        """What the last round left: enough to go on from, together with what the stores have settled."""
        rows = {name: store.changed() for name, store in self.stores.items()}
        server = self.server.tree() | under("attackers", self.attackers.memory)
        if self.rounds.at_once != self._begun_with:  # as memory allowed; who goes on must do so, too
            server |= under("run", {"at_once": torch.tensor(self.rounds.at_once)})
        return Snapshot(self.round, server, rows, self.ledger.of(rows["clients"][0]))

    def settle(self, snapshot: Snapshot) -> None:
        """The snapshot is durable: the stores may change."""
        for store in self.stores.values():
            store.settle()
        self.ledger.settle(snapshot.rows["clients"][0])

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; doing so again changes nothing."""
        device = self.x0.device
        self.round = snapshot.round
        self.server.restore(without(snapshot.server, "attackers"))
        if (fewer := within("run", snapshot.server).get("at_once")) is not None:
            self.rounds.take_at_once(int(fewer))
        memory = {n: leaf.to(device, copy=True) for n, leaf in within("attackers", snapshot.server).items()}
        self.clients.use(self.attackers.recall(self.context(self.round), memory, self.data))
        for name, (who, rows) in snapshot.rows.items():
            if len(who):
                self.stores[name].write(who, rows)
        if len(who := snapshot.rows["clients"][0]):
            self.ledger.restore(who, snapshot.spent)

    def flush(self, round: int) -> None:
        """Make everything that was settled up to a round durable."""
        for store in self.stores.values():
            store.flush(round)

    def personal(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """The models [K, d] that the clients `who` deploy now, and their running statistics [K, b]."""
        ctx = self.context(self.round)
        return self.clients.personal(ctx, who, self.server.told(ctx))

    def shared(self) -> tuple[Tensor, Tensor]:
        """The global model [d] and its running statistics [b]."""
        return self.server.shared(self.context(self.round))
