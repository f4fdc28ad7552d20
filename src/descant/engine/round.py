"""One round, from the cohort to the server's step: a pipeline of mail."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.context import Context
from descant.draws import uniform
from descant.engine.clients import Clients
from descant.engine.health import Checkup
from descant.engine.links import Broadcast, through
from descant.engine.plan import Plan
from descant.engine.records import CollapseError, HealthRecord, RoundRecord
from descant.engine.server import Server
from descant.mail import Form, Mail
from descant.trees import Tree, under, within


class Round:
    """The rounds of a federation whose clients are all here, `at_once` of them at a time."""

    def __init__(self, clients: Clients, server: Server, plan: Plan, at_once: int) -> None:
        self.clients, self.server, self.plan, self.at_once = clients, server, plan, at_once
        self.method, self.ledger = clients.method, clients.ledger
        self.malicious = plan.malicious.to(clients.here.device)
        self.attackers: Tree = {}  # what the attackers remember, by attack

    def play(self, ctx: Context) -> tuple[RoundRecord, HealthRecord | None]:
        """Carry a round out; its health comes along where it is due.

        `CollapseError` is raised where the federation diverges.
        """
        self.ledger.open()
        cohort = self.server.sample(ctx)
        silent = self.method.silent(self.server.view(ctx))
        down = {} if silent in (True, "down") else self.downlink(ctx, self.server.broadcast(ctx))
        checkup = self.checkup(ctx)
        mail = self.work(ctx, cohort, down, sends=silent not in (True, "up"), checkup=checkup)
        sent = self.attack(ctx, self.clients.refer(mail, down))
        mail, lost, refused = self.uplink(ctx, sent, down)
        if refused and not lost and not mail and not bool(torch.isin(sent.clients, self.malicious).all()):
            raise CollapseError(f"none of the {refused} messages was finite")
        self.ledger.report(self.server.step(ctx, mail))
        self.reply(ctx, mail.clients)
        lost += self.ledger.late
        record = self.ledger.close(ctx.round, len(cohort), len(mail.clients) if mail else 0, lost, refused)
        if checkup is None:
            return record, None
        return record, checkup.record(self.downlink(ctx, self.server.broadcast(ctx)))

    def checkup(self, ctx: Context) -> Checkup | None:
        """What looks at the round's health, where that is due. It hears the server, also in a silent round."""
        health = self.plan.health
        if health is None or not health.due(ctx.round):
            return None
        return Checkup(health, ctx, self.clients, self.server, self.downlink(ctx, self.server.broadcast(ctx)))

    def downlink(self, ctx: Context, down: Broadcast) -> Broadcast:
        """What the server says, as it reaches clients."""
        return through(self.plan.downlink, ctx.of_server(), down)

    def work(
        self, ctx: Context, cohort: Tensor, down: Broadcast, sends: bool, checkup: Checkup | None = None
    ) -> Mail:
        """The mail of the cohort after its local work, and everyone's work where all are to train."""
        trainers = cohort if self.plan.trainers == "cohort" else self.clients.here
        lots = [Mail.of({}, cohort[:0], ctx)]
        for who in torch.split(trainers, self.at_once) if len(trainers) else ():
            sending = torch.isin(who, cohort) if sends else torch.zeros_like(who, dtype=torch.bool)
            lots.append(self.clients.work(ctx, who, down, sending, None if checkup is None else checkup.worked))
        return Mail.join(lots)

    def attack(self, ctx: Context, mail: Mail) -> Mail:
        """The mail with the messages of malicious clients forged."""
        forged = torch.isin(mail.clients, self.malicious)
        if not mail or not bool(forged.any()):
            return mail
        mine, benign = mail.only(forged), mail.only(~forged)
        ctx = ctx.of_parties(mine.clients)
        for i, attack in enumerate(self.plan.attacks):
            memory, mine = attack.forge(ctx, within(str(i), self.attackers), mine, benign)
            self.attackers |= under(str(i), memory)
        return mail.but(forged, mine)

    def uplink(self, ctx: Context, mail: Mail, down: Broadcast) -> tuple[Mail, int, int]:
        """The mail as it reaches the server, how many messages were lost, and how many were refused."""
        if not mail:
            return mail, 0, 0
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
        arrives = torch.ones_like(mail.clients, dtype=torch.bool)
        if self.plan.lost:
            arrives = uniform(ctx.seed, "lost", ctx.round, mail.clients) >= self.plan.lost
        lost = int((~arrives).sum())
        usable = arrives if self.plan.keep_nonfinite else arrives & mail.finite()
        refused += int((arrives & ~usable).sum())
        clients.arrived(mail.clients[usable])
        return (mail if bool(usable.all()) else mail.only(usable)), lost, refused

    def reply(self, ctx: Context, senders: Tensor) -> None:
        """The server's answer to those whose messages it took, where the method has one."""
        if not len(senders):
            return
        reply = self.downlink(ctx, self.method.reply(self.server.view(ctx)))
        for who in torch.split(senders, self.at_once) if reply else ():
            self.clients.hear(ctx, who, reply)
