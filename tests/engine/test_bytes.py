"""Bytes are the length of what the codec really puts on the wire, up and down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from descant import FederatedData, Run, Task
from descant.codecs import Native
from descant.context import Context
from descant.coupling import Identity
from descant.engine.cohort import sample
from descant.engine.links import seen_by
from descant.engine.surroundings import Surroundings
from descant.engine.view import View
from descant.execution import Vmap
from descant.mail import Mail
from descant.methods import (
    AFL,
    APFL,
    EWC,
    MAPPER,
    MOCHA,
    MRMTL,
    QFFL,
    SKL,
    TERM,
    Ditto,
    FedAdam,
    FedALA,
    FedAMP,
    FedAvg,
    FedAvgM,
    FedBN,
    FedMGDA,
    FedPer,
    FedProx,
    FedRep,
    FineTune,
    LGFedAvg,
    Local,
    LpProj,
    Method,
    PerFedAvg,
    PFedMe,
    ServerView,
)

N, S, ROUNDS, D = 7, 3, 2, 15  # D: a linear model of 4 features and 3 classes
METHODS = [
    (FedAvg(), 4 * D + 4, 4 * D),  # the update and n_k up, w down
    (FedAvg(weighted=False), 4 * D, 4 * D),
    (FedProx(), 4 * D + 4, 4 * D),
    (FedAvgM(), 4 * D + 4, 4 * D),
    (FedAdam(weighted=False), 4 * D, 4 * D),
    (QFFL(), 4 * D + 4, 4 * D),  # and h_k
    (AFL(), 4 * D + 4, 4 * D),  # and the loss; the mixture stays with the server
    (TERM(), 4 * D + 4 + 4, 4 * D),  # n_k and the loss
    (TERM(weighted=False), 4 * D + 4, 4 * D),
    (FedMGDA(), 4 * D + 4, 4 * D),
    (Ditto(solver=TERM()), 4 * D + 4 + 4, 4 * D),
    (Local(), 0, 0),
    (Ditto(), 4 * D + 4, 4 * D),
    (Ditto(solver=FedProx(weighted=False)), 4 * D, 4 * D),
    (PFedMe(), 4 * D, 4 * D),
    (LpProj(dim=6), 4 * 6, 4 * 6),  # P is a seed, and never travels
    (LpProj(dim=0), 0, 0),
    (LpProj(projection=Identity()), 4 * D, 4 * D),
    (LGFedAvg(), 4 * D + 4, 4 * D),  # the only layer is the last one
    (FedPer(), 4, 0),  # and is kept here, so that n_k alone travels
    (FedPer(layers=("bias",)), 4 * 12 + 4, 4 * 12),
    (FedRep(layers=("bias",)), 4 * 12, 4 * 12),
    (FedBN(layers=("weight",)), 4 * 3, 4 * 3),
    (FineTune(steps=1), 4 * D + 4, 4 * D),
    (EWC(steps=1), 4 * D + 4, 4 * D),
    (SKL(steps=1, solver=FedAvg(weighted=False)), 4 * D, 4 * D),
    (PerFedAvg(), 4 * D, 4 * D),
    (APFL(), 4 * D, 4 * D),
    (MAPPER(), 4 * D, 4 * D),
    (MRMTL(), 4 * D, 4 * D),
    (MOCHA(), 4 * D, 4 * D + 4),  # and its bound
    (FedAMP(), 4 * D, 4 * D),
    (FedALA(), 4 * D + 4, 4 * D),
]
EVERY_METHOD = pytest.mark.parametrize(
    ("method", "up", "down"), METHODS, ids=[f"{i}-{m.name}" for i, (m, _, _) in enumerate(METHODS)]
)


@pytest.fixture(scope="module")
def linear() -> Task:
    torch.manual_seed(0)
    return Task(nn.Linear(4, 3))  # float32: four bytes a number


@pytest.mark.few(3)
@EVERY_METHOD
@pytest.mark.parametrize("trainers", ["cohort", "everyone"])
def test_who_hears_and_who_sends(run: Any, linear: Task, method: Method, up: int, down: int, trainers: str) -> None:
    """With everyone at work, N hear the server and S are heard: the papers' d_msg (N + S) numbers a round."""
    done: Run = run(method, task=linear, rounds=ROUNDS, cohort=S, trainers=trainers)
    hear = S if trainers == "cohort" else N
    assert [row["bytes_up"] for row in done.history.rounds] == [S * up] * ROUNDS
    assert [row["bytes_down"] for row in done.history.rounds] == [hear * down] * ROUNDS
    sent, heard = torch.zeros(N, dtype=torch.int64), torch.zeros(N, dtype=torch.int64)
    for t in range(1, ROUNDS + 1):
        cohort = sample(5, t, S, torch.ones(N))
        sent[cohort] += up
        heard[cohort if trainers == "cohort" else torch.arange(N)] += down
    assert done.history.spent[ROUNDS]["bytes_up"].tolist() == sent.tolist()
    assert done.history.spent[ROUNDS]["bytes_down"].tolist() == heard.tolist()


@EVERY_METHOD
def test_the_recorded_bytes_are_the_length_of_the_encoded_message(
    linear: Task, data: FederatedData, method: Method, up: int, down: int
) -> None:
    data, codec, who = data.to(dtype=torch.float32), Native(), torch.tensor([2])
    ctx = Context(1, 5, N, linear.layout, linear.start())
    broadcast = seen_by(who, method.broadcast(ServerView(method.server_start(ctx), ctx)))
    nothing = {model: torch.zeros(1, 0) for model in method.trains}
    local = View(Surroundings(Vmap(linear), data), ctx.of_parties(who), who, nothing)
    message, _ = method.client(broadcast, method.client_start(local), local)
    for leaves, expected in ((message, up), (broadcast, down)):
        mail = Mail.of(leaves, who, ctx)
        _, (payload,) = codec.encode(ctx, {}, mail)
        assert len(payload) == codec.size(mail.form) == expected
        blank = Mail.of(mail.form.blank(1), who, ctx)
        _, back = codec.decode(ctx, {}, [payload], blank)
        assert all(torch.equal(back[name], leaf) for name, leaf in leaves.items())


def test_numbers_of_eight_bytes_cost_eight_bytes(run: Any, task: Task) -> None:
    done = run(FedAvg(), rounds=1)
    assert done.history.rounds[0]["bytes_up"] == N * (8 * task.dim + 4)
    assert done.history.rounds[0]["bytes_down"] == N * 8 * task.dim


@pytest.mark.parametrize(("buffers", "extra"), [("shared", 4 * 2 * 6), ("local", 0)])
def test_running_statistics_are_billed_where_they_travel(
    run: Any, federation: Any, buffers: Any, extra: int
) -> None:
    """The mean and the variance of six channels, in float32, up and down."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    task, data = Task(model, buffers=buffers), federation((6, 8, 4))
    done = run(FedAvg(steps=2, batch=2, weighted=False), task=task, data=data, rounds=1)
    assert done.history.rounds[0]["bytes_up"] == 3 * (4 * task.dim + extra)
    assert done.history.rounds[0]["bytes_down"] == 3 * (4 * task.dim + extra)


def test_the_figures_of_a_run_add_up(run: Any, linear: Task) -> None:
    done = run(LpProj(dim=21, steps=1), task=linear, rounds=3, cohort=S, trainers="everyone")
    summary = done.summary()
    assert summary["bytes_up"] + summary["bytes_down"] == 3 * 4 * 21 * (N + S)
