"""Clients in processes of their own: each with its data alone, and only bytes between it and the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys.noise import PrivateFedAvg
from toys.subspace import Subspace

from descant import FederatedData, Task
from descant.codecs import DGC, LBGM, QSGD, BFloat16, Codec, CountSketch, Native, RandomK, Sign, TopK, Uniform
from descant.context import Context
from descant.engine import Clients, Plan, Server
from descant.engine.links import Broadcast, Parcels
from descant.execution import Vmap
from descant.mail import Form, Mail
from descant.methods import (
    FLAME,
    L2SGD,
    METHODS,
    MOCHA,
    Ditto,
    FedADMM,
    FedAvg,
    Method,
    PerClient,
    PFed1BS,
    Scaffold,
)
from descant.trees import Tree
from tests import held

SEED, ROUNDS, COHORT, SECRET = 5, 4, 3, 9
SHORT: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 4}


def downwards(ctx: Context, down: Broadcast, k: int) -> tuple[bytes, Form]:
    """A broadcast to client k as bytes, with the names, shapes and types that both ends know."""
    rows = {n: leaf.rows[k][None] if isinstance(leaf, PerClient) else leaf[None] for n, leaf in down.items()}
    mail = Mail.of(rows, torch.tensor([k]), ctx)
    return Native().encode(ctx, {}, mail)[1][0], mail.form


def heard(payload: bytes, form: Form, ctx: Context) -> dict[str, Tensor | PerClient]:
    """The broadcast that a client makes of the bytes."""
    blank = Mail.of(form.blank(1), torch.zeros(1, dtype=torch.int64), ctx)
    return {name: leaf[0] for name, leaf in Native().decode(ctx, {}, [payload], blank)[1].items()}


class Alone:
    """A process that holds one client: its data and its state, and nothing of the others."""

    def __init__(
        self, k: int, task: Task, data: FederatedData, method: Method, plan: Plan, down: Broadcast
    ) -> None:
        self.who = torch.tensor([k])
        ctx = context(task, len(data), 0)
        told = heard(*downwards(ctx, down, k), ctx)
        self.clients = Clients(ctx, Vmap(task), data.only([k]), method, plan, told)

    def round(self, ctx: Context, payload: bytes, form: Form) -> Parcels:
        down = heard(payload, form, ctx)
        mail = self.clients.refer(self.clients.work(ctx, self.who, down), down)
        return self.clients.encode(ctx, mail)[0] if mail else Parcels([], self.who[:0], self.who[:0], mail.form)


def context(task: Task, clients: int, round: int) -> Context:
    return Context(round, SEED, clients, task.layout, task.start(), SECRET)


def joined(parcels: list[Parcels]) -> Parcels:
    """The parcels as the server's door sees them: bytes, from whom."""
    return Parcels(
        [payload for one in parcels for payload in one.payloads],
        torch.cat([one.clients for one in parcels]),
        torch.cat([one.started for one in parcels]),
        next((one.form for one in parcels if one.payloads), parcels[0].form),
    )


def by_mail(
    task: Task, data: FederatedData, method: Method, codec: Codec, **settings: Any
) -> tuple[Server, list[Alone]]:
    """The rounds of a run, with a process for every client."""
    plan, N = Plan(cohort=COHORT, seed=SEED, codec=codec, **settings), len(data)
    server = Server(context(task, N, 0), Vmap(task), method, plan, data.train.sizes)
    homes = [Alone(k, task, data, method, plan, server.broadcast(context(task, N, 0))) for k in range(N)]
    for t in range(1, ROUNDS + 1):
        ctx = context(task, N, t)
        silent = method.silent(server.view(ctx))
        down = {} if silent in (True, "down") else server.broadcast(ctx)
        sent = joined([homes[k].round(ctx, *downwards(ctx, down, k)) for k in server.sample(ctx).tolist()])
        if not sent.payloads:
            continue
        mail, refused = server.decode(ctx, sent, down)
        assert not refused and mail.started.tolist() == [t] * len(mail.clients)
        for k in mail.clients.tolist():
            homes[k].clients.arrived(torch.tensor([k]))
        server.step(ctx, mail)
        if reply := method.reply(server.view(ctx)):
            for k in mail.clients.tolist():
                homes[k].clients.hear(ctx, homes[k].who, heard(*downwards(ctx, reply, k), ctx))
    return server, homes


def agree(run: Any, task: Task, data: FederatedData, method: Method, codec: Codec, **settings: Any) -> None:
    server, homes = by_mail(task, data, method, codec, **settings)
    done = run(method, task=task, data=data, rounds=ROUNDS, cohort=COHORT, codec=codec, secret=SECRET, **settings)
    whole = held.simulation(done)
    assert done.collapse is None

    def same(found: Tree, expected: Tree) -> None:
        assert found.keys() == expected.keys()
        for name, leaf in expected.items():
            assert torch.allclose(found[name].double(), leaf.double(), rtol=0, atol=1e-10), name

    same(
        server.state | {"statistics": server.statistics},
        whole.server.state | {"statistics": whole.server.statistics},
    )
    same(server.copies.leaves, whole.server.copies.leaves)
    stores = [home.clients.store.leaves for home in homes]
    same({name: torch.cat([leaves[name] for leaves in stores]) for name in stores[0]}, whole.store.leaves)
    bills = done.history.spent[ROUNDS]
    for kind in ("bytes_down", "gradients", "examples", "scored"):
        assert [int(home.clients.ledger.spent[kind]) for home in homes] == bills[kind].tolist(), kind


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.5])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "mocha"])  # which trains linear models
def test_a_client_alone_trains_as_it_does_among_all(
    run: Any, task: Task, data: FederatedData, name: str, stragglers: float
) -> None:
    method = METHODS[name](**SHORT)
    codec: Codec = TopK(share=0.3, feedback=not method.turns) if method.sends else Native()
    if "codec" in method.refuses:
        codec = Uniform(bits=method.bits, span=method.centre) if isinstance(method, PFed1BS) else Native()
    agree(run, task, data, method, codec, stragglers=stragglers)


TOYS: list[tuple[Method, Codec]] = [
    (Scaffold(**SHORT), TopK(share=0.3)),
    (L2SGD(p=0.5, batch=4), Native()),
    (Subspace(**SHORT, dim=4), Native()),
    (Ditto(solver=Subspace(**SHORT, dim=4), **SHORT), Native()),
    (PrivateFedAvg(**SHORT), DGC(share=0.3)),
    (FedAvg(**SHORT), QSGD(bucket=7)),
    (FLAME(**SHORT), QSGD(bucket=7)),
    (FedAvg(**SHORT), CountSketch(share=0.2, columns=0.3)),
    (FLAME(**SHORT), CountSketch(share=0.2, columns=0.3)),
    (Scaffold(**SHORT), RandomK(share=0.3)),
    (FLAME(**SHORT), Sign()),
    (FedADMM(**SHORT), BFloat16()),
    (FLAME(**SHORT), LBGM(delta=0.5)),
    (FedADMM(**SHORT), DGC(share=0.3)),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("method", "codec"), TOYS, ids=lambda part: part.name)
def test_so_does_whatever_remembers_and_draws(
    run: Any, task: Task, data: FederatedData, method: Method, codec: Codec
) -> None:
    agree(run, task, data, method, codec)


def test_a_client_alone_is_told_its_own_row(run: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(5)]
    data = FederatedData.from_arrays([{"train": (x, x.sum(1, keepdim=True))} for x in rows])
    task = Task(nn.Linear(4, 1, bias=False).double(), loss="squared_error")
    agree(run, task, data, MOCHA(lam=3.0, loss="squared", every=2), TopK(share=0.5))


def test_running_statistics_travel_too(run: Any, federation: Any) -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    agree(run, task, federation((6, 3, 9, 4)), FedAvg(lr=0.1, steps=3, batch=None), TopK(share=0.3))


SUMS = [name for name, method in METHODS.items() if method().needs == "sums" and hasattr(method, "weighted")]


@pytest.mark.few(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SUMS)
def test_a_method_that_needs_sums_is_content_with_their_mean(
    task: Task, data: FederatedData, name: str, weighted: bool
) -> None:
    """One row in the place of all: the weighted mean, with the sum of the weights."""
    method = METHODS[name](**SHORT, weighted=weighted)
    plan, start = Plan(cohort=len(data), seed=SEED), context(task, len(data), 0)
    everyone = torch.arange(len(data))
    rows, sums = (Server(start, Vmap(task), method, plan, data.train.sizes) for _ in range(2))
    clients = Clients(start, Vmap(task), data, method, plan, rows.broadcast(start))
    for t in range(1, 4):
        ctx = context(task, len(data), t)
        mail = clients.work(ctx, everyone, rows.broadcast(ctx))
        rows.step(ctx, mail)
        p = mail["n"].double() if weighted else torch.ones(len(data)).double()
        mean = {
            leaf: mail[leaf].sum(0, keepdim=True).to(mail[leaf].dtype)
            if leaf == "n"
            else torch.tensordot(p / p.sum(), mail[leaf], dims=1)[None]
            for leaf in mail
        }
        sums.step(ctx, replace(mail, leaves=mean, clients=everyone[:1], started=mail.started[:1]))
        for leaf, expected in rows.state.items():
            assert torch.allclose(sums.state[leaf], expected, rtol=0, atol=1e-12)
    assert float((rows.state["w"] - method.server_start(start)["w"]).abs().max()) > 1e-3
