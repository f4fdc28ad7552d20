"""The server: its state, the broadcast, its half of the mail, and a step of the method with the aggregator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.engine.cohort import sample, sample_uniform
from descant.engine.downlink import DOWNLINK, Downlink
from descant.engine.links import Broadcast, Parcels, decode, keeps_sent, references, sent_like
from descant.engine.plan import Plan
from descant.engine.records import CollapseError
from descant.engine.returned import (
    broadcast_of,
    called,
    check_combined,
    check_references,
    combined_of,
    first_state,
    models_of,
    server_state,
)
from descant.engine.statistics import STATISTICS, shares_statistics
from descant.engine.unchanged import refuse_written, versions_of
from descant.engine.watching import Watch
from descant.execution import Execution
from descant.fields import of_descant
from descant.mail import LAST, Mail, all_finite, not_finite
from descant.methods import Method, PerClient, ServerView
from descant.mirrors import host, sent
from descant.state import ClientStore, HeldRows, MappedStore
from descant.trees import Tree, under, within, without

_OURS = (STATISTICS, DOWNLINK, "aggregator", "attackers", "run")  # owners of leaves beside the method's


class Taken(NamedTuple):
    """What the mail of a round makes of the server."""

    state: Tree  # of the method
    memory: Tree  # of the aggregator
    statistics: Tensor
    combined: Tree  # what the aggregator made of the messages, by leaf
    figures: Tree


class Server:
    """What the server holds: the method's state, the running statistics of the shared model, the aggregator's
    memory, and what the codec remembers of every client. `sizes` [N] are the clients' numbers of examples."""

    def __init__(
        self,
        ctx: Context,
        execution: Execution,
        method: Method,
        plan: Plan,
        sizes: Tensor | None = None,
        folder: Path | None = None,
    ) -> None:
        self.method, self.plan, self.sizes = method, plan, sizes
        self._watch = Watch(method, ctx.x0.device)
        begun = self._watch("server_start", method.server_start, ctx.of_server())
        state = dict(first_state(method, "server_start", begun, _OURS, method.held))
        self.held = HeldRows({n: state.pop(n) for n in method.held}, folder / "held" if folder else None)
        self._state = {name: leaf.contiguous() for name, leaf in state.items()}
        self.statistics = execution.task.buffer_start().to(ctx.x0.device)  # [b]
        self.collects = shares_statistics(method, execution)  # running statistics, from its clients
        self.spreads = self.collects and "shared" in method.trains
        self._memory: Tree = {}  # of the aggregator
        self._everyone: Tensor | None = None  # the cohort of all
        self._foreseen: tuple[int, Tensor] | None = None  # a round to come, and its cohort
        self._decoded: list[tuple[Tensor, Tree]] = []  # whom mail was decoded of, and their new copies
        self._keeps_sent = keeps_sent(method, plan)
        self._first_sent = self._watch("first_sent", method.first_sent, ctx) if self._keeps_sent else {}
        asks = plan.codec.updates or self._keeps_sent
        told = self.broadcast(ctx)
        check_references(method, told)
        self._like = sent_like(method, ctx, told) if asks else {}
        self.downlink = Downlink(plan.downlink, ctx, self._following(ctx) if plan.downlink.updates else told)
        first, N, device = self._first_copies, ctx.clients, ctx.x0.device
        self.copies: ClientStore = (
            MappedStore(N, first, folder / "copies") if folder and self._like else ClientStore(N, first, device)
        )

    @property
    def state(self) -> Tree:
        """The method's state."""
        return self._state | self.held.leaves

    def view(self, ctx: Context) -> ServerView:
        return ServerView(self.state, ctx.of_server())

    def tree(self) -> Tree:
        """Everything but rows of clients, for a commit."""
        ours = under("aggregator", self._memory) | under(DOWNLINK, self.downlink.tree())
        return self._state | {STATISTICS: self.statistics} | ours

    def restore(self, tree: Tree) -> None:
        device = self.statistics.device
        tree = {name: leaf.to(device, copy=True) for name, leaf in tree.items()}
        self.statistics, self._memory = tree[STATISTICS], within("aggregator", tree)
        self.downlink.restore(within(DOWNLINK, tree))
        self._state = without(tree, *_OURS)

    def sample(self, ctx: Context) -> Tensor:
        """The numbers of the clients that take part in a round, in ascending order."""
        if self._foreseen is not None and self._foreseen[0] == ctx.round:
            return self._foreseen[1]
        weights = self._watch("cohort_weights", self.method.cohort_weights, self.view(ctx))
        device = ctx.x0.device
        if weights is None and self.plan.sampling == "uniform":
            if self.plan.cohort == ctx.clients:
                if self._everyone is None:
                    self._everyone = sent(torch.arange(ctx.clients), device)
                return self._everyone
            return sent(sample_uniform(ctx.seed, ctx.round, self.plan.cohort, ctx.clients), device)
        if weights is None:
            assert self.sizes is not None, "sampling by size needs the clients' sizes"
            weights = self.sizes
        return sent(sample(ctx.seed, ctx.round, self.plan.cohort, host(weights)), device)

    def foreseen(self, ctx: Context) -> Tensor | None:
        """Those who will take part in a round to come, unless that depends on the rounds before it."""
        if self.method.cohort_weights(self.view(ctx)) is not None:
            return None
        self._foreseen = (ctx.round, self.sample(ctx))
        return self._foreseen[1]

    def broadcast(self, ctx: Context) -> dict[str, Tensor | PerClient]:
        down = broadcast_of(self.method, self._watch("broadcast", self.method.broadcast, self.view(ctx)))
        return down | {STATISTICS: self.statistics} if self.spreads else down

    def _following(self, ctx: Context) -> dict[str, Tensor | PerClient]:
        """What is to be heard after this round: the broadcast of the next one, after the last its own."""
        return self.broadcast(ctx.at(min(ctx.round + 1, self.plan.rounds)))

    def told(self, ctx: Context) -> dict[str, Tensor | PerClient]:
        """The broadcast, as clients hear it."""
        return self.downlink.heard(ctx, self.broadcast(ctx))

    def silent(self, ctx: Context) -> bool | Literal["up", "down"]:
        """Whether nothing travels in a round, or nothing one way."""
        return self._watch("silent", self.method.silent, self.view(ctx))

    def reply(self, ctx: Context) -> dict[str, Tensor | PerClient]:
        """What the server answers to those whose messages it took."""
        return self.downlink.answered(ctx, self._watch("reply", self.method.reply, self.view(ctx)))

    def shared(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """The global model [d] and its running statistics [b]."""
        given = self._watch("shared", self.method.shared, self.view(ctx))
        x = models_of(self.method, "shared", given, tuple(ctx.x0.shape))
        return x, self.statistics

    def decode(self, ctx: Context, parcels: Parcels, down: Broadcast) -> tuple[Mail, int]:
        """The mail in some parcels, and how many messages could not be decoded.

        What the server remembers of it is kept when it takes the mail (`step`).
        """
        copies = self.copies.gather(parcels.clients)
        leaves = parcels.form.blank(len(parcels.clients), parcels.clients.device)
        blank = Mail(leaves, parcels.clients, ctx, parcels.started)
        last = within("sent", copies)
        found = references(self.method, blank, down, last)
        blank = replace(blank, references=found, since_last=tuple(name for name in last if name in found))
        new, mail, refused = decode(self.plan.codec, ctx.of_server(), within("codec", copies), parcels, blank)
        self._decoded.append((mail.clients, under("codec", new)))
        return mail, refused

    def step(self, ctx: Context, mail: Mail, taken: Taken | None = None, finite: Tensor | None = None) -> Tree:
        """Take the mail of a round; return the figures that the method and the aggregator report.

        What is `taken` was foreseen of this mail, `finite` being what `unread` asked for.
        """
        decoded, self._decoded = self._decoded, []
        if not mail:
            return {}
        self._remember(mail, decoded)
        taken = self._take(ctx, mail) if taken is None else taken
        self._memory, self.statistics, state = taken.memory, taken.statistics, taken.state
        self.held.replace({name: state[name] for name in self.method.held})
        # As it comes back from a file, too: products of tensors with other strides may differ in the last bit.
        self._state = {n: leaf.contiguous() for n, leaf in state.items() if n not in self.method.held}
        if finite is None or not bool(finite.all()):
            self._check_finite()
        if self.plan.downlink.updates:
            self.downlink.say(ctx, self._following(ctx))
        return taken.figures

    def foresee(self, ctx: Context, mail: Mail) -> Taken | None:
        """What would become of some mail, found before it is known to be finite. Nothing is kept of it."""
        try:
            return self._take(ctx, mail)
        except Exception:  # of what is not finite; a mistake of the method's own is raised when the mail is taken
            return None

    def unread(self, taken: Taken) -> Tensor:
        """Whether the leaves of what is taken are finite, one flag each."""
        bounded = self._bounded(taken.state)
        return all_finite(bounded) if bounded else torch.ones(0, dtype=torch.bool, device=self.statistics.device)

    def rehearse(self, ctx: Context, mail: Mail) -> Tree:
        """What the aggregator would make of some mail, by leaf. Nothing is kept of it."""
        return self._take(ctx, mail).combined if mail else {}

    def _take(self, ctx: Context, mail: Mail) -> Taken:
        """What becomes of the mail of a round. Nothing is kept here."""
        return self._watch("server", self._taken, self.view(ctx), ctx, mail)

    def _taken(self, view: ServerView, ctx: Context, mail: Mail) -> Taken:
        memory, statistics, found, asked = self._memory, self.statistics, Tree(), False
        leaves = dict(mail)
        # Running statistics are combined once, with the first leaves of the senders.
        waiting = {STATISTICS: leaves.pop(STATISTICS)} if self.collects else {}
        facts = {name: leaves.pop(name) for name in self.plan.aggregator.reads}
        figures = dict(mail.figures)
        received = replace(mail, leaves=leaves, ctx=ctx.of_server(), facts=facts, figures=figures)

        def aggregate(leaves: Mapping[str, Tensor], weights: Tensor | None = None) -> Tree:
            nonlocal statistics, asked
            asked = True
            of_senders = all(len(leaf) == len(mail.clients) for leaf in leaves.values())
            # Of rows that the server holds of all clients, who is chosen among them is not one of the senders.
            along = {name: waiting.pop(name) for name in list(waiting)} if of_senders else {}
            combined = combine({**leaves, **along}, weights)
            if along:
                statistics = combined.pop(STATISTICS)
            found.update(combined)
            return combined

        def combine(leaves: Mapping[str, Tensor], weights: Tensor | None) -> Tree:
            nonlocal memory
            references = {name: leaf for name, leaf in received.references.items() if name in leaves}
            if STATISTICS in leaves:  # they move away from those that the server holds
                references[STATISTICS] = self.statistics[None]
            ballot = replace(received, leaves=dict(leaves), weights=weights, references=references)
            if any(len(leaf) != len(mail.clients) for leaf in leaves.values()):
                ballot = _of_everyone(ballot)
            aggregator = self.plan.aggregator
            versions = [] if of_descant(type(aggregator)) else versions_of([ballot])
            memory, combined = aggregator.combine(received.ctx, memory, ballot)
            refuse_written(called(aggregator), versions)
            return combined_of(aggregator, combined, ballot)

        leaves_before = tuple(view)
        state = server_state(self.method, self.method.server(view, received, aggregate), leaves_before)
        if not asked:
            check_combined(self.method, self.plan.aggregator)
        if waiting:  # the method combined no leaves of the senders, or did so by itself
            aggregate({})
        return Taken(state, memory, statistics, found, figures)

    def _check_finite(self) -> None:
        if (name := not_finite(self._bounded(self.state))) is not None:
            raise CollapseError(f"the server's '{name}' is not finite")

    def _bounded(self, state: Tree) -> Tree:
        """The leaves of a state that must be finite."""
        return {name: leaf for name, leaf in state.items() if name not in self.method.unbounded}

    def _remember(self, mail: Mail, decoded: list[tuple[Tensor, Tree]]) -> None:
        """Keep what is to be remembered of the mail's senders."""
        for clients, copies in decoded:
            read = torch.isin(clients, mail.clients)
            if copies and bool(read.any()):
                self.copies.scatter(clients[read], {name: leaf[read] for name, leaf in copies.items()})
        if self._keeps_sent:
            self.copies.scatter(mail.clients, under("sent", {name: mail[name] for name in self._first_sent}))

    def _first_copies(self, who: Tensor) -> Tree:
        like = {name: row.expand(len(who), *row.shape[1:]) for name, row in self._like.items()}
        copies = under("codec", self.plan.codec.copies(like)) if like else {}
        since_last = [name for name, sent in self.method.sends.items() if sent.of == LAST and self._keeps_sent]
        rows = {name: self._first_sent[name].expand(len(who), *self._first_sent[name].shape) for name in since_last}
        return copies | under("sent", rows)


def _of_everyone(ballot: Mail) -> Mail:
    """Rows that the server holds of all clients, as if all had sent theirs now; they moved away from one point."""
    everyone = torch.arange(len(next(iter(ballot.values()))), device=ballot.clients.device)
    started = torch.full_like(everyone, ballot.ctx.round)
    references = {name: r.to(ballot[name].dtype).mean(0, keepdim=True) for name, r in ballot.references.items()}
    return replace(ballot, clients=everyone, started=started, references=references, facts={})
