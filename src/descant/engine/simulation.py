"""The round loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from descant.aggregators import Aggregator
from descant.codecs import Codec
from descant.data import FederatedData
from descant.draws import seed_of, uniform
from descant.engine.cohort import Sampling, sample, sample_uniform
from descant.engine.evaluation import Evaluation, select
from descant.engine.ledger import ACCOUNTS, Ledger
from descant.engine.measure import measure
from descant.engine.records import Account, Collapse, Evaluated, RoundRecord, Snapshot
from descant.engine.view import Setting, View
from descant.engine.wire import Inbox, Server, not_finite, rows_finite, seen_by, size_of_one
from descant.execution import Execution
from descant.execution.batches import Rows
from descant.execution.tuning import at_once
from descant.methods import Method, Tree
from descant.state.store import ClientStore, MappedStore

Record = RoundRecord | Evaluated | Account | Collapse
_KEPT = "statistics."  # prefix of the running statistics among the clients' leaves


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a simulation that are neither data, task nor method."""

    rounds: int
    cohort: int
    seed: int
    sampling: Sampling
    trainers: Literal["cohort", "everyone"]
    own_start: bool
    stragglers: float
    drop_last: bool
    keep_nonfinite: bool
    chunk: int | None  # how many clients to process at once, where that was asked for
    evaluation: Evaluation
    aggregator: Aggregator
    codec: Codec


class Simulation:
    """A federation in one process. `run` yields what is to be reported, round by round.

    With a `folder` the clients' state is memory-mapped there; it then changes only by `settle`, after every round.
    """

    def __init__(
        self,
        execution: Execution,
        data: FederatedData,
        method: Method,
        plan: Plan,
        trained_at_once: int,
        folder: Path | None = None,
    ) -> None:
        self.execution, self.data, self.method, self.plan = execution, data, method, plan
        self.task = execution.task
        self.everyone = torch.arange(len(data), device=data.train.inputs.device)
        self.x0 = self.task.start().to(self.everyone.device)
        self._training = Setting(execution, data, plan.seed, plan.stragglers, plan.drop_last)
        self._deployed = Setting(execution, data, plan.seed, drop_last=plan.drop_last)
        self.trained_at_once = trained_at_once
        self.evaluated_at_once = plan.chunk or at_once(self.task, data, None, len(data), least=1)
        self.round = 0
        self.server = Server(method, self.task, plan.aggregator, self.x0, len(data))
        self._statistics = self.server.statistics  # that clients start with
        self.store: ClientStore
        if folder is None:
            self.store = ClientStore(len(data), self._first_state, self.x0.device)
            self.ledger = Ledger(len(data))
        else:
            self.store = mapped = MappedStore(len(data), self._first_state, folder, ACCOUNTS)
            self.ledger = Ledger(len(data), mapped.files)

    def run(self) -> Iterator[Record]:
        """Train up to the planned rounds, or until the federation collapses.

        A round's evaluation comes after its own record, and before that of the next round: whoever restores a
        snapshot of a round gets the evaluation again.
        """
        while True:
            if self.plan.evaluation.due(self.round, self.plan.rounds):
                yield from self._evaluate()
            if self.round >= self.plan.rounds:
                return
            self.round += 1
            outcome = self._train()
            yield outcome
            if isinstance(outcome, Collapse):
                return

    def snapshot(self) -> Snapshot:
        """What the last round left: enough to go on from, together with what the store has settled."""
        who, rows = self.store.changed()
        server = self.server
        return Snapshot(self.round, server.state, server.statistics, who, rows, self.ledger.of(who))

    def settle(self, snapshot: Snapshot) -> None:
        """The snapshot is durable: the store may change."""
        self.store.settle()
        self.ledger.settle(snapshot.clients)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; doing so again changes nothing."""
        device = self.x0.device
        self.round = snapshot.round
        self.server.state = {name: leaf.to(device) for name, leaf in snapshot.server.items()}
        self.server.statistics = snapshot.statistics.to(device)
        if len(snapshot.clients):
            self.store.write(snapshot.clients, snapshot.rows)
            self.ledger.restore(snapshot.clients, snapshot.spent)

    def personal(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """The models [K, d] that the clients `who` deploy now, and their running statistics [K, b]."""
        state, local = self._open(who, self._deployed)
        local.deploys = True
        x = self.method.personal(seen_by(who, self.method.broadcast(self.server.state)), state, local)
        return x, local.statistics("personal")

    def shared(self) -> tuple[Tensor, Tensor]:
        """The global model [d] and its running statistics [b]."""
        return self.method.shared(self.server.state), self.server.statistics

    def _train(self) -> RoundRecord | Collapse:
        method, plan, server = self.method, self.plan, self.server
        self.ledger.open()
        cohort = self._sample()
        silent = method.silent(server.state, self.round, self._coin)
        down = {} if silent else server.broadcast()
        inbox, lost = Inbox(cohort.device, self.task.layout), 0
        for who in torch.split(cohort if plan.trainers == "cohort" else self.everyone, self.trained_at_once):
            seen = seen_by(who, down)
            state, local = self._open(who, self._training, arrives=not silent)
            message, new = method.client(seen, state, local)
            self._check_state(state, new)
            if (leaf := not_finite(new)) is not None:
                name = self.data.clients[int(who[~rows_finite(new[leaf])][0])]
                return Collapse(self.round, f"the state '{leaf}' of client '{name}' is not finite")
            self._close(who, new, local)
            hears = method.hears(state, self.round)
            self.ledger.add("bytes_down", who if hears is None else who[hears], size_of_one(plan.codec, seen))
            if silent or not message:
                continue
            sends = torch.isin(who, cohort)
            if method.drops_stragglers:
                lost += int((sends & ~local.finished).sum())
                sends &= local.finished
            if sends.any():
                message = server.message(message, local.buffers)
                inbox.put({name: leaf[sends] for name, leaf in message.items()}, who[sends])
                self.ledger.add("bytes_up", who[sends], size_of_one(plan.codec, message))
        messages, refused = inbox.open(plan.keep_nonfinite)
        received = len(messages.clients)
        if refused and not received:
            return Collapse(self.round, f"none of the {refused} messages was finite")
        if received:
            self.ledger.report(server.receive(messages))
        if (leaf := not_finite({n: s for n, s in server.state.items() if n not in method.unbounded})) is not None:
            return Collapse(self.round, f"the server's '{leaf}' is not finite")
        return self.ledger.close(self.round, len(cohort), received, lost, refused)

    def _evaluate(self) -> Iterator[Evaluated | Account]:
        """Loss and metric of every client's models, on each part."""
        wanted = self.plan.evaluation
        yield self.ledger.account(self.round)
        evaluated: dict[str, Evaluated] = {}
        for model in wanted.models:
            if model == "selected" or (model == "shared" and not self.method.has_shared):
                continue
            if model == "shared" and not self.method.personalizes and "personal" in wanted.models:
                continue  # it is what clients deploy
            found: dict[str, list[tuple[Tensor, Tensor]]] = {part: [] for part in wanted.parts}
            for who in torch.split(self.everyone, self.evaluated_at_once):
                if model == "personal":
                    x, buffers = self.personal(who)
                else:
                    x, buffers = (row.expand(len(who), -1) for row in self.shared())
                    if self.task.buffers == "local":  # every client predicts with its own running statistics
                        buffers = self._open(who, self._deployed)[1].statistics("shared")
                for part, blocks in found.items():
                    blocks.append(measure(self.execution, x, buffers, Rows(self.data.part(part), who)))
            loss = {part: torch.cat([block[0] for block in blocks]) for part, blocks in found.items()}
            metric = {part: torch.cat([block[1] for block in blocks]) for part, blocks in found.items()}
            evaluated[model] = Evaluated(self.round, model, loss, metric)
            yield evaluated[model]
        if "selected" in wanted.models and len(evaluated) == 2:
            yield select(evaluated["personal"], evaluated["shared"], self.task.metric.higher_is_better)

    def _first_state(self, who: Tensor) -> Tree:
        x = self.x0.expand(len(who), -1)
        if self.plan.own_start:
            seeds = [seed_of(self.plan.seed, "start", k) for k in who.tolist()]
            x = torch.stack([self.task.random_start(seed) for seed in seeds]).to(self.x0.device)
        statistics = self._statistics.expand(len(who), -1)
        kept = self.method.trains if statistics.shape[1] else ()
        return self.method.client_start(x) | {_KEPT + model: statistics for model in kept}

    def _open(self, who: Tensor, setting: Setting, arrives: bool = True) -> tuple[Tree, View]:
        """The state of the clients `who`, and the view a method gets of them (`arrives`: after a broadcast)."""
        state = self.store.gather(who)
        arrived = self.server.statistics.expand(len(who), -1)
        buffers = {model: state.pop(_KEPT + model, arrived) for model in self.method.trains}
        if self.server.spreads and arrives:
            buffers["shared"] = arrived
        return state, View(setting, who, self.round, self._coin, buffers)

    def _close(self, who: Tensor, state: Tree, local: View) -> None:
        """Keep what the clients `who` hold after a round, and charge them for it."""
        buffers = {m: local.buffers[m] for m in self.method.trains if local.buffers[m].shape[1]}
        self.store.scatter(who, state | {_KEPT + model: rows for model, rows in buffers.items()})
        self.ledger.add("gradients", who, local.evaluations)
        self.ledger.add("examples", who, local.examples)
        self.ledger.report(local.figures)

    def _check_state(self, state: Tree, new: Tree) -> None:
        if set(state) != set(new):
            raise ValueError(
                f"{type(self.method).__name__}.client was given the state {sorted(state)} "
                f"and returned {sorted(new)}: it must return the same leaves"
            )

    def _sample(self) -> Tensor:
        seed, size = self.plan.seed, self.plan.cohort
        weights = self.method.cohort_weights(self.server.state)
        if weights is None and self.plan.sampling == "uniform":
            return sample_uniform(seed, self.round, size, len(self.data), self.x0.device)
        return sample(seed, self.round, size, self.data.train.sizes if weights is None else weights)

    @property
    def _coin(self) -> float:
        return float(uniform(self.plan.seed, "coin", self.round))
