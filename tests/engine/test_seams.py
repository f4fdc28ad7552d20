"""Where the parts of a round meet: each is asked, told and remembered no more and no less than it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task
from descant.aggregators import CenteredClipping, KLoss
from descant.attacks import Attack, SignFlip
from descant.codecs import LBGM, Float16
from descant.context import Context
from descant.engine import Plan, Simulation
from descant.errors import SettingError
from descant.execution import Vmap
from descant.mail import Mail, Sent
from descant.methods import FLAME, Aggregate, Ditto, FedAvg, LocalView, Messages, Method, ServerView, Tree
from tests import held


def test_clipping_starts_from_what_was_sent_last_whoever_else_asks_for_it(run: Any) -> None:
    clipping = CenteredClipping(tau=0.05)
    plain = run(FLAME(steps=2), cohort=4, aggregator=clipping)
    watched = run(FLAME(steps=2), cohort=4, aggregator=clipping, attacks="random-labels", malicious=0)
    assert torch.equal(held.shared(plain), held.shared(watched))


@dataclass(frozen=True, kw_only=True)
class EverySecond(FedAvg):
    """FedAvg that is silent in every second round."""

    name: ClassVar[str] = "every-second"

    def silent(self, server: ServerView) -> bool:
        return server.ctx.round % 2 == 0

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return super().client(down, state, local) if down else ({}, state)


def test_nobody_is_asked_for_a_loss_in_a_round_without_mail(run: Any) -> None:
    fine_tuned = run(Ditto(steps=2, after=1), cohort=4, aggregator=KLoss())
    silent = run(Ditto(steps=2, solver=EverySecond(steps=2)), cohort=4, aggregator=KLoss())
    assert [scored > 0 for scored in fine_tuned.rounds["scored"]] == [True, False, False]
    assert [scored > 0 for scored in silent.rounds["scored"]] == [True, False, True]


@dataclass(frozen=True, kw_only=True)
class Spy(Attack):
    """An attacker that looks for secrets."""

    name: ClassVar[str] = "spy"
    found: list[Any] = field(default_factory=list)

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        self.found.append(ctx.party)
        return data

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        self.found.append(ctx.party)
        return state, mail


@dataclass(frozen=True, kw_only=True)
class Noted(Float16):
    """A codec that notes whose secret it is given."""

    name: ClassVar[str] = "noted"
    found: list[Any] = field(default_factory=list)

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        self.found.append(ctx.party)
        return super().encode(ctx, memory, mail)


def test_every_party_has_its_own_secret_and_nobody_that_of_all(task: Task, data: FederatedData) -> None:
    spy, noted = Spy(), Noted()
    malicious = torch.tensor([1, 4])
    plan = Plan(cohort=7, secret=9, attacks=(spy,), malicious=malicious, downlink=noted)
    simulation = Simulation(Vmap(task), data, FedAvg(steps=1), plan, 7)
    list(simulation.run())
    assert len(spy.found) == 2 and all(torch.equal(party, malicious) for party in spy.found)
    assert noted.found and set(noted.found) == {"server"}
    ctx = simulation.context(0)
    attackers = ctx.of_parties(malicious).private.bits("mask")
    assert len({int(ctx.of_server().private.bits("mask")), int(ctx.private.bits("mask")), *attackers.tolist()}) == 4


@dataclass(frozen=True, kw_only=True)
class Hiding(FedAvg):
    """A server that starts at a place of its own."""

    name: ClassVar[str] = "hiding"

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.private.normal("start", tuple(ctx.x0.shape))}


def test_a_server_starts_with_its_own_secret(task: Task, data: FederatedData) -> None:
    simulation = Simulation(Vmap(task), data, Hiding(steps=1), Plan(cohort=7, secret=9), 7)
    ctx = simulation.context(0).of_server()
    assert torch.equal(simulation.server.state["w"], ctx.private.normal("start", tuple(ctx.x0.shape)))


@dataclass(frozen=True, kw_only=True)
class Twice(FedAvg):
    """FedAvg that asks the aggregator for something else first."""

    name: ClassVar[str] = "twice"

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        aggregate({"other": messages["delta"]}, weights=messages["n"])
        return super().server(server, messages, aggregate)


def test_running_statistics_are_combined_once_a_round(run: Any, federation: Any) -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    settings = {"task": task, "data": federation((6, 3, 9)), "aggregator": CenteredClipping(tau=0.01)}
    once, twice = (run(method, **settings) for method in (FedAvg(steps=2), Twice(steps=2)))
    assert torch.equal(*(held.simulation(done).server.statistics for done in (once, twice)))


@dataclass(frozen=True, kw_only=True)
class InPlace(FLAME):
    """FLAME that writes into what the server holds, which a user's method may not."""

    name: ClassVar[str] = "in-place"

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        server["u"][messages.clients] = messages["u"]
        return {"w": aggregate({"u": server["u"]})["u"], "u": server["u"]}


InPlace.__module__ = "descant.in_place"


def test_rows_that_were_changed_in_place_are_committed_too(task: Task, data: FederatedData) -> None:
    def federation(rounds: int) -> Simulation:
        return Simulation(Vmap(task), data, InPlace(steps=1), Plan(cohort=3, rounds=rounds, secret=9), 7)

    begun, resumed = federation(2), federation(2)
    list(begun.run())
    resumed.restore(begun.snapshot())
    assert torch.equal(resumed.server.state["u"], begun.server.state["u"])


def test_some_clients_of_a_federation_are_simulated_as_one_of_their_own(run: Any, federation: Any) -> None:
    method = FedAvg(steps=2, batch=3)
    some = run(method, data=federation((6, 1, 9, 4, 13, 2, 7)).only([2, 4, 0]), cohort=None, rounds=2)
    spent = some.history.spent[2]
    assert spent["gradients"].tolist() == [4, 4, 4] and (spent["bytes_up"] > 0).all()


@pytest.mark.parametrize("method", [FedAvg(steps=2), FLAME(steps=2)], ids=lambda method: method.name)
def test_mail_may_be_decoded_as_it_comes_in(task: Task, data: FederatedData, method: Method) -> None:
    plan = Plan(cohort=7, codec=LBGM(), aggregator=CenteredClipping(tau=0.1), secret=9)
    at_once, one_by_one = (Simulation(Vmap(task), data, method, plan, 7) for _ in range(2))
    for round in (1, 2):
        for simulation in (at_once, one_by_one):
            ctx, server, clients = simulation.context(round), simulation.server, simulation.clients
            down = server.broadcast(ctx)
            mail = clients.refer(clients.work(ctx, simulation.everyone, down), down)
            parcels, _ = clients.encode(ctx, mail)
            lots = [[k] for k in range(7)] if simulation is one_by_one else [list(range(7))]
            mail = Mail.join([server.decode(ctx, parcels.only(lot), down)[0] for lot in lots])
            clients.arrived(mail.clients)
            server.step(ctx, mail)
    for name, leaf in at_once.server.copies.leaves.items():
        assert torch.equal(one_by_one.server.copies.leaves[name], leaf), name
    assert torch.equal(one_by_one.server.state["w"], at_once.server.state["w"])


@dataclass(frozen=True, kw_only=True)
class Unsaid(FedAvg):
    """FedAvg that does not say what it sends."""

    name: ClassVar[str] = "unsaid"

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {}


def test_an_attack_on_updates_that_would_change_nothing_is_refused(run: Any) -> None:
    with pytest.raises(SettingError, match="it would change nothing"):
        run(Unsaid(steps=1), attacks=SignFlip(on="update"), malicious=2)
    assert run(Unsaid(steps=1), attacks=SignFlip(), malicious=2).collapse is None


@dataclass(frozen=True, kw_only=True)
class Tuned(FedAvg):
    """FedAvg whose clients deploy a model that they train further, and say how many steps their message took."""

    name: ClassVar[str] = "tuned"
    personalizes: ClassVar[bool] = True

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        message, state = super().client(down, state, local)
        local.record("steps", local.taken().steps)
        return message, state

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return local.run(self.step, down["w"], down["w"], work=self.work, role="shared/tuned")


def test_a_model_that_is_made_to_be_judged_is_no_part_of_the_work_of_a_round(run: Any) -> None:
    done = run(Tuned(steps=2), rounds=1, aggregator=KLoss())
    assert done.rounds["steps"].to_list() == [2 * 7]
    assert done.rounds["gradients"].to_list() == [4 * 7], "and yet it is on the bill"
