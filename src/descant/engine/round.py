"""One round, from the cohort to the server's step: a pipeline of mail."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from descant.attacks import Seen
from descant.context import Context
from descant.draws import uniform
from descant.engine.attackers import Attackers
from descant.engine.clients import Clients
from descant.engine.health import Checkup
from descant.engine.links import Broadcast, as_heard
from descant.engine.plan import Plan
from descant.engine.records import CollapseError, HealthRecord, RoundRecord
from descant.engine.server import Server, Taken
from descant.engine.unread import later, read
from descant.execution import Loop, Vmap
from descant.mail import Form, Mail
from descant.mirrors import host, parts, sent
from descant.trees import Tree

# What the mail of a round makes of the server, and which leaves of it are finite; nothing if it is not foreseen.
Foreseen = tuple[()] | tuple[Taken, Tensor]


class Round:
    """The rounds of a federation whose clients are all here, `at_once` of them at a time."""

    def __init__(self, clients: Clients, server: Server, plan: Plan, at_once: int, attackers: Attackers) -> None:
        self.clients, self.server, self.plan, self.at_once = clients, server, plan, at_once
        self.method, self.ledger, self.attackers = clients.method, clients.ledger, attackers
        self._next: tuple[int, Tensor, int, Tensor] | None = (
            None  # round, trainers, how many have worked, who is next
        )

    def play(self, ctx: Context) -> tuple[RoundRecord, HealthRecord | None]:
        """Carry a round out; its health comes along where it is due.

        `CollapseError` is raised where the federation diverges.
        """
        self.ledger.open()
        self.look(ctx)
        cohort = self.server.sample(ctx)
        silent = self.server.silent(ctx)
        down = {} if silent in (True, "down") else self.server.told(ctx)
        checkup = self.checkup(ctx)
        mail = self.work(ctx, cohort, down, sends=silent not in (True, "up"), checkup=checkup)
        sent = self.attack(ctx, self.clients.refer(mail, down), down)
        mail, lost, refused, foreseen = self.uplink(ctx, sent, down)
        if refused and not lost and not mail and not bool(self.attackers.among(sent).all()):
            raise CollapseError(f"none of the {refused} messages was finite")
        self.ledger.report(self.server.step(ctx, mail, *foreseen))
        self.reply(ctx, mail.clients)
        lost += self.ledger.late
        record = self.ledger.close(ctx.round, len(cohort), len(mail.clients) if mail else 0, lost, refused)
        if checkup is None:
            return record, None
        return record, checkup.record(self.server.told(ctx))

    def checkup(self, ctx: Context) -> Checkup | None:
        """What looks at the round's health, where that is due. It hears the server, also in a silent round."""
        health = self.plan.health
        if health is None or not health.due(ctx.round):
            return None
        return Checkup(health, ctx, self.clients, self.server, self.server.told(ctx))

    def work(
        self, ctx: Context, cohort: Tensor, down: Broadcast, sends: bool, checkup: Checkup | None = None
    ) -> Mail:
        """The mail of the cohort after its local work, and everyone's work where all are to train."""
        trainers = cohort if self.plan.trainers == "cohort" else self.clients.here
        lots, done = list[Mail](), 0
        looks = None if checkup is None else checkup.worked
        while done < len(trainers):
            who = self.group(trainers, done)
            sending: Tensor | None = None  # of those who work: all
            if not sends:
                sending = torch.zeros(len(who), dtype=torch.bool)
            elif trainers is not cohort:
                sending = torch.isin(host(who), host(cohort))
            # Those who work alone in a round of their own are kept at its end, when a GPU is waited for anyhow.
            reads = looks is not None or who is not trainers or not later(who)
            then = partial(self.after, ctx, trainers, done, who)
            try:
                lots.append(self.clients.work(ctx, who, down, sending, looks, then, reads))
                done += len(who)
            except torch.OutOfMemoryError:
                if self.clients.store.make_room():  # rows that lay beside the work: it may suffice for as many now
                    torch.cuda.empty_cache()
                elif len(who) == 1:
                    raise
                else:
                    self.fewer_at_once(len(who))
        return Mail.join([Mail.of({}, cohort[:0], ctx), *lots])

    def group(self, trainers: Tensor, done: int) -> Tensor:
        """Those who work together after the first `done` of the trainers."""
        if done == 0 and len(trainers) <= self.at_once:
            return trainers
        if self._next is not None and self._next[1] is trainers and self._next[2] == done:
            return self._next[3]
        return sent(host(trainers)[done : done + self.at_once], trainers.device)

    def after(self, ctx: Context, trainers: Tensor, done: int, who: Tensor) -> tuple[Context, Tensor] | None:
        """Who works next, and in which round, as far as that is known: their minibatches can be drawn ahead."""
        if not later(trainers):
            return None
        self._next, done = None, done + len(who)
        if done == len(trainers):
            ctx, done = ctx.at(ctx.round + 1), 0
            following = self.server.foreseen(ctx) if self.plan.trainers == "cohort" else self.clients.here
            if following is None:
                return None
            trainers = following
        some = self.group(trainers, done)
        self._next = (ctx.round, trainers, done, some)
        return ctx, some

    def fewer_at_once(self, clients: int) -> None:
        """So many clients were too many for the memory: take half of them from now on."""
        self.take_at_once(-(-clients // 2))
        self.clients.execution.note(
            f"the memory did not hold {clients} clients at once: {self.at_once} are trained at once"
        )
        torch.cuda.empty_cache()

    def take_at_once(self, clients: int) -> None:
        """Train so many clients at once from now on."""
        self.at_once, self._next, execution = clients, None, self.clients.execution
        if isinstance(execution, Vmap):
            execution.resize(clients)

    def look(self, ctx: Context) -> None:
        """Let the attackers look at the model before a round, and change by it what they train on."""

        def sight() -> Seen:
            task, batched = self.clients.task, not isinstance(self.clients.execution, Loop)
            deployed = not self.method.personalizes and not self.plan.downlink.exact  # as it was heard
            if self.method.has_shared and not deployed:
                x, buffers = self.server.shared(ctx)
                return Seen(task, x[None], buffers[None], batched)
            down = self.server.told(ctx)
            return Seen(task, *self.clients.personal(ctx, self.attackers.who, down), batched)

        data = self.attackers.look(ctx, self.clients.data, sight)
        if data is not self.clients.data:
            self.clients.use(data)

    def attack(self, ctx: Context, mail: Mail, down: Broadcast) -> Mail:
        """The mail with the messages of malicious clients forged."""
        forged = self.attackers.among(mail)
        if not mail or not bool(forged.any()):
            return mail

        def defence(sent: Mail) -> Tree:
            told = mail.but(forged, sent)
            return self.server.rehearse(ctx, told if self.plan.keep_nonfinite else told.only(told.finite()))

        mine, benign = as_heard(self.method, mail.only(forged), down), mail.only(~forged)
        return mail.but(forged, self.attackers.forge(ctx, mine, benign, defence))

    def uplink(self, ctx: Context, mail: Mail, down: Broadcast) -> tuple[Mail, int, int, Foreseen]:
        """The mail as it reaches the server, how many messages were lost, how many were refused, and what the mail
        makes of the server where that was foreseen."""
        if not mail:
            held = self.clients.unread
            asked = torch.ones(0, dtype=torch.bool) if held is None else held
            self.clients.settle(*read(asked, meanwhile=self.clients.draw_ahead))
            return mail, 0, 0, ()
        codec, clients, refused = self.plan.codec, self.clients, 0
        if codec.exact:
            clients.posted(mail)
            size = codec.size(Form.of(mail))
            self.ledger.add("bytes_up", clients.data.places(mail.clients), size or 0)
        else:
            parcels, unencoded = clients.encode(ctx, mail)
            lengths = torch.tensor([len(payload) for payload in parcels.payloads], dtype=torch.int64)
            self.ledger.add("bytes_up", clients.data.places(parcels.clients), lengths)
            mail, undecoded = self.server.decode(ctx, parcels, down)
            refused = unencoded + undecoded
        lost = 0
        if self.plan.lost:
            arrives = uniform(ctx.seed, "lost", ctx.round, host(mail.clients)) >= self.plan.lost
            lost, mail = int((~arrives).sum()), mail.only(arrives)
        finite, foreseen = self.judge(ctx, mail)
        if not foreseen and not self.plan.keep_nonfinite:  # what was foreseen is of mail that is finite
            usable = mail.only(finite)
            refused, mail = refused + len(mail.clients) - len(usable.clients), usable
        clients.arrived(mail.clients)
        return mail, lost, refused, foreseen

    def judge(self, ctx: Context, mail: Mail) -> tuple[Tensor, Foreseen]:
        """Which messages [S] are finite, and what all of them make of the server if they are.

        Most mail is finite. So a GPU is asked for the server's step before anybody waits for it, and all that has
        to be known of the round is read at once. What the clients hold is kept here.
        """
        nothing = torch.ones(0, dtype=torch.bool, device=mail.clients.device)
        held, taken, made = self.clients.unread, None, nothing
        if mail and later(mail.clients):
            taken = self.server.foresee(ctx, mail)
            made = nothing if taken is None else self.server.unread(taken)
        flags = (nothing if held is None else held, mail.finite(), made)
        # While the answers are noted here, the GPU draws what the next round begins with.
        known, finite, made = read(*flags, meanwhile=self.clients.draw_ahead)
        self.clients.settle(known)
        return finite, (taken, made) if taken is not None and bool(finite.all()) else ()

    def reply(self, ctx: Context, senders: Tensor) -> None:
        """The server's answer to those whose messages it took, where the method has one."""
        if not len(senders):
            return
        reply = self.server.reply(ctx)
        for who in parts(senders, self.at_once) if reply else ():
            self.clients.hear(ctx, who, reply)
