"""The clients of a process: their data and their state, the work of a round, and their half of the mail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.context import Context
from descant.data import FederatedData
from descant.engine.byitself import ByItself
from descant.engine.downlink import DOWNLINK, HEARD, SAID, bytes_of, said_to
from descant.engine.ledger import ACCOUNTS, Ledger
from descant.engine.links import Broadcast, Parcels, decode, encode, keeps_sent, references, seen_by, sent_like
from descant.engine.plan import Plan
from descant.engine.returned import first_state, heard_of, message_and_state, models_of
from descant.engine.statistics import STATISTICS, refuse_statistics, shares_statistics
from descant.engine.surroundings import Surroundings
from descant.engine.unread import Kept, check_finite
from descant.engine.view import View
from descant.engine.watching import Watch
from descant.execution import Execution
from descant.mail import LAST, Mail, all_finite
from descant.methods import Method, Work
from descant.mirrors import host, sent
from descant.state import ClientStore, MappedStore
from descant.trees import Tree, under, within, without

_OURS = (STATISTICS, DOWNLINK, "codec", "sent", "mirror")  # owners of leaves beside the method's


class Clients:
    """Some clients of a federation, or all of them: `work` is a round for a few at once.

    They may be a silo of one (`data.only([17])`) in a process of its own, which then trains exactly as that client
    of the whole does. `ctx` is that of the start.
    """

    def __init__(
        self,
        ctx: Context,
        execution: Execution,
        data: FederatedData,
        method: Method,
        plan: Plan,
        down: Broadcast,
        folder: Path | None = None,
    ) -> None:
        self.execution, self.method, self.plan = execution, method, plan
        self.task, self._watch = execution.task, Watch(method, ctx.x0.device)
        self._by_itself = ByItself(method)
        refuse_statistics(self.task, method)
        numbers = torch.arange(len(data)) if data.numbers is None else host(data.numbers)
        self.here = sent(numbers, ctx.x0.device)
        self._start = ctx.at(0)
        self._statistics = self.task.buffer_start().to(ctx.x0.device)  # that clients start with
        self.use(data)
        self.keeps_sent = keeps_sent(method, plan)
        self._like = sent_like(method, ctx, down) if plan.codec.updates or self.keeps_sent else {}
        self._pending: tuple[Tensor, Tree] | None = None  # what the clients remember if their mail arrives
        # What is drawn ahead for those who work next, and who works before them.
        self._then: tuple[list[tuple[str, Work, int]], Tensor, Context, Tensor] | None = None
        self._kept: Kept | None = None  # what they hold after their work, until it is known to be finite
        self.deploying = Ledger(len(data))  # what `personal` has taken since an evaluation began
        self.store: ClientStore
        if folder is None:
            self.store = ClientStore(len(data), self._first_state, ctx.x0.device)
            self.ledger = Ledger(len(data))
        else:
            self.store = mapped = MappedStore(len(data), self._first_state, folder, ACCOUNTS)
            self.ledger = Ledger(len(data), mapped.files)

    def use(self, data: FederatedData) -> None:
        """Work on these data from now on: other examples, of the same clients."""
        plan = self.plan
        self.data = data
        self._training = Surroundings(self.execution, data, plan.stragglers, plan.drop_last, plan.own_start)
        self._deployed = Surroundings(self.execution, data, drop_last=plan.drop_last, own_start=plan.own_start)

    def work(
        self,
        ctx: Context,
        who: Tensor,
        down: Broadcast,
        sends: Tensor | None = None,
        looks: Callable[[Tensor, Tree, Tree, View], None] | None = None,
        then: Callable[[], tuple[Context, Tensor] | None] = lambda: None,
        reads: bool = True,
    ) -> Mail:
        """A round's work of the clients with the numbers `who` [K], after the broadcast `down`.

        The mail is of those who finished and are to send (`sends` [K], everyone by default); it is empty where the
        method has nothing to say. Whoever `looks` is shown the clients' new state before it is kept. `then` says
        who works next, and in which round; it is asked once a GPU is at work. Unless it `reads` here whether that
        state is finite, `settle` keeps it, and `draw_ahead` is to be called for those who work next.
        """
        method = self.method
        seen, state, local = self._open(ctx, who, down, self._training)
        local.looked_at = looks is not None
        asked, judging = self._asked(ctx, who, down, sends)
        fetched = self._watch("fetches", method.fetches, seen, state, local)
        given = self._watch("client", method.client, seen, state, local)
        message, new = message_and_state(method, given, state, len(who))
        self._by_itself.look("client", who, (message, new), partial(self._alone, method.client, ctx, down))
        following = then()
        self._then = None if following is None else (local.done, following[1], following[0], who)
        if reads:
            self.draw_ahead()
            self._check_finite(who, new)
        if looks is not None:
            looks(who, seen, new, local)
        sends = torch.ones(len(who), dtype=torch.bool) if sends is None else host(sends)
        late = sends & ~local.finished if method.drops_stragglers else torch.zeros_like(sends)
        leaves = message | asked | self._told(local) if message else {}
        mail = Mail.of(leaves, who, ctx).only(sends & ~late)
        travelled = self.travelled(who, down, seen, fetched)
        # Nothing was kept or charged up to here: should memory not have sufficed, the work can be done again.
        self._close(who, new, local, down, keeps=reads)
        self.ledger.add("bytes_down", self.data.places(who), travelled)
        if judging is not None:
            self._bill_work(who, judging)
        self.ledger.late += int(late.sum())
        return mail

    def draw_ahead(self) -> None:
        """A GPU is at work: what comes next can be made ready, if there is room for it."""
        then, self._then = self._then, None
        if then is not None:
            runs, clients, ctx, working = then
            with suppress(torch.OutOfMemoryError):
                self._training.draw_ahead(runs, clients, ctx)
                self.store.ahead(self.data.places(clients), self.data.places(working))

    @property
    def unread(self) -> Tensor | None:
        """Whether the leaves of what is to be kept are finite, one flag each, where nobody has read it yet."""
        return all_finite(self._kept.method) if self._kept is not None and self._kept.method else None

    def settle(self, finite: Tensor | None) -> None:
        """Keep what the clients hold, `finite` being what `unread` asked for."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        if finite is not None and not bool(finite.all()):
            self._check_finite(kept.who, kept.method)
        self.store.scatter(self.data.places(kept.who), kept.rows)

    def hear(self, ctx: Context, who: Tensor, reply: Broadcast) -> None:
        """What the clients `who` make of the server's reply at the end of a round."""
        heard, state, local = self._open(ctx, who, reply, self._training)
        self.ledger.add("bytes_down", self.data.places(who), self.travelled(who, reply, heard, {}))
        given = self._watch("hear", self.method.hear, heard, state, local)
        new = heard_of(self.method, given, state, len(who))
        self._check_finite(who, new)
        self._close(who, new, local, reply)

    def personal(self, ctx: Context, who: Tensor, down: Broadcast) -> tuple[Tensor, Tensor]:
        """The models [K, d] that the clients `who` deploy after a broadcast, with running statistics [K, b]."""
        seen, state, local = self._open(ctx, who, down, self._deployed)
        local.deploys = True
        given = self._watch("personal", self.method.personal, seen, state, local)
        x = models_of(self.method, "personal", given, (len(who), self.task.dim))
        self._by_itself.look("personal", who, x, partial(self._alone, self.method.personal, ctx, down))
        self._note_deploying(who, local)
        return x, local.statistics("personal")

    def resumes(self, ctx: Context, who: Tensor, down: Broadcast) -> tuple[Tensor, View]:
        """The models [K, d] that the work of the clients `who` starts from after a broadcast, and their view."""
        seen, state, local = self._open(ctx, who, down, self._deployed)
        local.deploys = True
        return self._watch("resumes", self.method.resumes, seen, state, local), local

    def statistics(self, ctx: Context, who: Tensor, down: Broadcast) -> Tensor:
        """The clients' own running statistics [K, b] of the shared model."""
        return self._open(ctx, who, down, self._deployed)[2].statistics("shared")

    def refer(self, mail: Mail, down: Broadcast) -> Mail:
        """The mail with what its leaves moved away from, as the clients know it."""
        last = self._remembered("sent", mail) if self.keeps_sent else {}
        found = references(self.method, mail, down, last)
        return replace(mail, references=found, since_last=tuple(name for name in last if name in found))

    def encode(self, ctx: Context, mail: Mail) -> tuple[Parcels, int]:
        """The mail as bytes, and how many messages could not be encoded.

        What the clients remember of it is kept once it has arrived (`arrived`).
        """
        codec, party = self.plan.codec, ctx.of_parties(mail.clients)
        memory, parcels, refused = encode(codec, party, self._remembered("codec", mail), mail)
        clients, kept = parcels.clients, under("codec", memory)
        if self.keeps_sent and len(clients):  # what the server will read, so that both refer to the same
            mine = mail.only(torch.isin(mail.clients, clients))
            blank = replace(mine, leaves=mine.form.blank(len(clients), clients.device))
            mirror, read, _ = decode(codec, party, self._remembered("mirror", mine), parcels, blank)
            legible = torch.isin(clients, read.clients)  # the server will not read the others either
            clients, kept = read.clients, {name: leaf[legible] for name, leaf in kept.items()}
            kept |= under("mirror", mirror) | under("sent", {name: read[name] for name in self._sent_since_last})
        self._pending = (clients, kept)
        return parcels, refused

    def posted(self, mail: Mail) -> None:
        """The mail went out as it is, by a codec that changes nothing (the short cut of a simulation)."""
        kept = {name: mail[name] for name in self._sent_since_last} if self.keeps_sent and mail else {}
        self._pending = (mail.clients, under("sent", kept))

    def arrived(self, who: Tensor) -> None:
        """The mail of the clients `who` was read: they remember what they sent. The others stay as they were."""
        assert self._pending is not None
        (clients, kept), self._pending = self._pending, None
        if kept and bool((read := torch.isin(clients, who)).any()):
            rows = {name: leaf[read] for name, leaf in kept.items()}
            self.store.scatter(self.data.places(clients[read]), rows)

    def travelled(self, who: Tensor, down: Broadcast, seen: Tree, fetched: Mapping[str, Tensor]) -> Tensor:
        """The bytes [K] that a broadcast took on its way to the clients `who`, found before they keep it."""
        missed = None
        if SAID in down:
            heard = self.store.gather(self.data.places(who), DOWNLINK)[HEARD]
            missed = host(said_to(who, down)) - host(heard)
        return bytes_of(self.plan.downlink, seen, fetched, missed)

    def _open(self, ctx: Context, who: Tensor, down: Broadcast, setting: Surroundings) -> tuple[Tree, Tree, View]:
        """What the clients `who` hear, what they hold, and the view a method gets of them."""
        seen = seen_by(who, {name: leaf for name, leaf in down.items() if name != SAID})
        state = self.store.gather(self.data.places(who))
        first = self._statistics.expand(len(who), -1)
        buffers = {model: state.get(f"{STATISTICS}.{model}", first) for model in self.method.trains}
        if STATISTICS in seen:
            buffers["shared"] = seen[STATISTICS]
        view = View(setting, ctx.of_parties(who), who, buffers)
        return seen, without(state, *_OURS), view

    def _alone(
        self, hook: Callable[..., Any], ctx: Context, down: Broadcast, who: Tensor
    ) -> tuple[Any, tuple[Tree, Tree]]:
        """What a hook makes of the client `who` [1] alone, and of what. Nothing is kept of it."""
        deploys = hook == self.method.personal
        seen, state, local = self._open(ctx, who, down, self._deployed if deploys else self._training)
        local.deploys = deploys
        return hook(seen, state, local), (seen, state)

    def _starting(self, who: Tensor) -> View:
        """The view of clients that begin."""
        buffers = {model: self._statistics.expand(len(who), -1) for model in self.method.trains}
        return View(self._deployed, self._start.of_parties(who), who, buffers)

    def _close(self, who: Tensor, state: Tree, local: View, down: Broadcast, keeps: bool = True) -> None:
        """Keep what the clients `who` hold after a round, now or by `settle`, and charge them for it."""
        kept = {m: local.buffers[m] for m in self.method.trains if local.buffers[m].shape[1]}
        heard = {HEARD: said_to(who, down)} if SAID in down else {}
        self._kept = Kept(who, state, state | under(STATISTICS, kept) | heard)
        if keeps:
            self.settle(None)
        self._bill_work(who, local)
        self.ledger.report(local.figures)

    def _bill_work(self, who: Tensor, local: View) -> None:
        """Charge the clients `who` for what they computed."""
        places = self.data.places(who)
        self.ledger.add("gradients", places, local.evaluations)
        self.ledger.add("examples", places, local.examples)
        self.ledger.add("scored", places, local.scored)

    def _note_deploying(self, who: Tensor, local: View) -> None:
        """Count the gradients that making the models which clients deploy took: on no bill, but not unseen."""
        if local.worked:
            places = self.data.places(who)
            self.deploying.add("gradients", places, local.evaluations)
            self.deploying.add("examples", places, local.examples)

    def _first_state(self, places: Tensor) -> Tree:
        who = sent(host(self.here)[host(places)], self.here.device)
        local = self._starting(who)
        begun = self._watch("client_start", self.method.client_start, local)
        own = first_state(self.method, "client_start", begun, _OURS, clients=len(who))
        self._by_itself.look(
            "client_start", who, own, lambda one: (self.method.client_start(self._starting(one)), ())
        )
        kept = local.buffers if len(self._statistics) else {}
        like = {name: row.expand(len(who), *row.shape[1:]) for name, row in self._like.items()}
        state = own | under(STATISTICS, kept) | under("codec", self.plan.codec.memory(like))
        if self.plan.downlink.updates:
            state[HEARD] = torch.zeros(len(who), dtype=torch.int64, device=who.device)
        if self.keeps_sent:
            first = {name: row.expand(len(who), *row.shape) for name, row in self._first_sent.items()}
            state |= under("sent", first) | under("mirror", self.plan.codec.copies(like))
        return state

    @property
    def _sent_since_last(self) -> list[str]:
        return [name for name, sent in self.method.sends.items() if sent.of == LAST]

    @property
    def _first_sent(self) -> Tree:
        first = self._watch("first_sent", self.method.first_sent, self._start)
        return {name: first[name] for name in self._sent_since_last}

    def _remembered(self, owner: str, mail: Mail) -> Tree:
        return within(owner, self.store.gather(self.data.places(mail.clients), owner))

    def _asked(self, ctx: Context, who: Tensor, down: Broadcast, sends: Tensor | None) -> tuple[Tree, View | None]:
        """What the run's aggregator asks clients for, found before their work and apart from it, if any `sends`.

        The view that it was found by says what that took.
        """
        if "loss" not in self.plan.aggregator.reads or not (sends is None or bool(host(sends).any())):
            return {}, None
        seen, state, local = self._open(ctx, who, down, self._deployed)
        local.deploys = True
        judged = self._watch("judged", self.method.judged, seen, state, local)
        return {"loss": local.losses(judged)}, local

    def _told(self, local: View) -> Tree:
        """The running statistics that go along with a message."""
        if not shares_statistics(self.method, self.execution):
            return {}
        of = "shared" if "shared" in local.buffers else self.method.trains[0]
        return {STATISTICS: local.buffers[of]}

    def _check_finite(self, who: Tensor, new: Tree) -> None:
        """A benign client whose state has overflowed is a collapse; a malicious one's is nobody's result."""
        check_finite(who, new, self.plan.malicious, self._training.names)
