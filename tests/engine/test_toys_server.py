"""Servers and attackers that remember, choose and add noise, against plain loops over the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.attacks import Grudge, Opposite
from toys.noise import NoisyFedAvg, PrivateFedAvg

from descant import FederatedData, Task
from descant.aggregators import CenteredClipping, KLoss
from descant.attacks import SignFlip
from descant.codecs import Float16
from descant.context import Context
from descant.draws import normal
from descant.methods import Ditto, FedAvg, LpProj, PFedMe
from tests import held
from tests.engine.points import LR, PLAIN, SEED, N, close, cohort_of, pulled


@pytest.mark.parametrize("weighted", [False, True])
def test_centered_clipping_goes_on_from_the_last_aggregate(
    run: Any, point: Task, points: FederatedData, means: Tensor, weighted: bool
) -> None:
    tau = 0.2
    method = FedAvg(lr=LR, steps=3, batch=None, weighted=weighted)
    aggregator = CenteredClipping(tau=tau, iterations=2)
    done = run(method, task=point, data=points, rounds=6, cohort=3, aggregator=aggregator)
    w, v, n, clipped = point.start(), torch.zeros(2).double(), (3, 1, 5, 2), 0
    for t in range(1, 7):
        cohort = cohort_of(t, 3)
        updates = {k: pulled(w, means[k]) for k in cohort}
        share = {k: n[k] / sum(n[j] for j in cohort) if weighted else 1 / 3 for k in cohort}
        for _ in range(2):
            step = torch.zeros(2).double()
            for k, u in updates.items():
                off = u - v
                length = float(off.norm())
                clipped += length > tau
                step = step + share[k] * off * min(1.0, tau / length)
            v = v + step
        w = w + v
    assert 0 < clipped < 36
    close(held.shared(done), w)


def test_centered_clipping_of_positions_starts_at_their_reference(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    """pFedMe sends positions w_k, which moved away from w: in the first round they are clipped around w."""
    method = PFedMe(lr=LR, steps=3, batch=None, lam=2.0, eta=0.2)
    done = run(method, task=point, data=points, rounds=1, aggregator=CenteredClipping(tau=0.1))
    w, moved = point.start(), torch.zeros(2).double()
    for k in range(N):
        x = w
        for _ in range(3):
            x = x - LR * (x - means[k] + 2.0 * (x - w))
        off = -0.2 * 2.0 * (w - x)
        moved = moved + off * min(1.0, 0.1 / float(off.norm())) / N
    close(held.shared(done), w + moved)


@pytest.mark.parametrize("k_", [0, 1])
def test_k_loss_under_ditto(run: Any, point: Task, points: FederatedData, means: Tensor, k_: int) -> None:
    method = Ditto(solver=PLAIN, lr=LR, steps=2, batch=None, lam=0.5)
    done = run(method, task=point, data=points, rounds=6, cohort=3, aggregator=KLoss(k=k_))
    Y = [points.train.client(k)[1] for k in range(N)]
    w, v = point.start(), point.start().repeat(N, 1)
    for t in range(1, 7):
        cohort = cohort_of(t, 3)
        losses = {k: float((0.5 * (w - Y[k]).square().sum(1)).mean()) for k in cohort}
        chosen = sorted(cohort, key=lambda k: losses[k])[3 - k_ - 1]
        for k in cohort:
            for _ in range(2):
                v[k] = v[k] - LR * (v[k] - means[k] + 0.5 * (v[k] - w))
        w = w + pulled(w, means[chosen])
    close(held.shared(done), w)
    close(held.personal(done), v)
    for row in done.history.rounds:
        assert row["bytes_up"] == 3 * (2 + 1) * 8, "the loss is billed"
    spent = sum(len(Y[k]) for t in range(1, 7) for k in cohort_of(t, 3))
    assert sum(row["scored"] for row in done.history.rounds) == spent


def test_k_loss_under_lp_proj_judges_the_personal_models(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    lam, eta = 0.3, 0.2
    method = LpProj(lr=LR, steps=2, batch=None, lam=lam, eta=eta, p=2.0, dim=2)
    done = run(method, task=point, data=points, rounds=6, cohort=3, aggregator=KLoss(k=1))
    Y = [points.train.client(k)[1] for k in range(N)]
    P = method.projection.build(SEED, 2, point.start()[None]).project(torch.eye(2).double()).T  # [2, 2]
    w, x = torch.zeros(2).double(), point.start().repeat(N, 1)
    for t in range(1, 7):
        cohort = cohort_of(t, 3)
        losses = {k: float((0.5 * (x[k] - Y[k]).square().sum(1)).mean()) for k in cohort}
        sent = {}
        for k in cohort:
            for _ in range(2):
                x[k] = x[k] - LR * (x[k] - means[k] - lam * P.T @ (w - P @ x[k]))
            sent[k] = w - eta * lam * (w - P @ x[k])
        w = sent[sorted(cohort, key=lambda k: losses[k])[1]]
    close(held.by_server(done)["w"], w)
    close(held.personal(done), x)
    assert {row["bytes_up"] for row in done.history.rounds} == {3 * (2 + 1) * 8}


def test_an_attacker_may_know_what_the_others_send(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    done = run(PLAIN, task=point, data=points, rounds=6, cohort=3, attacks=[Opposite()], malicious=[0, 2])
    w, lots = point.start(), set()
    for t in range(1, 7):
        cohort = cohort_of(t, 3)
        benign = [pulled(w, means[k]) for k in cohort if k in (1, 3)]
        against = [-sum(benign) / len(benign)] * (3 - len(benign)) if benign else []
        lots.add(len(benign))
        w = w + sum([*benign, *against]) / 3
    assert lots == {1, 2}
    close(held.shared(done), w)


def test_an_attacker_may_remember(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    attacks = [SignFlip(tau=1.0), Grudge(beta=0.5)]  # the last word is the second one's
    done = run(PLAIN, task=point, data=points, rounds=8, cohort=2, attacks=attacks, malicious=[0, 2])
    w, memory = point.start(), np.zeros(2)
    for t in range(1, 9):
        cohort = cohort_of(t, 2)
        updates = {k: pulled(w, means[k]).numpy() for k in cohort}
        benign = [updates[k] for k in cohort if k in (1, 3)]
        guilty = [k for k in cohort if k in (0, 2)]
        if guilty and benign:
            memory = 0.5 * memory + sum(benign) / len(benign)
        for k in guilty:
            if memory.any():
                updates[k] = -memory
            else:  # nobody to spoil yet: what the first attack made of it
                c = -abs(float(normal(SEED, "each", t, "sign-flip", k, 0)))
                updates[k] = c * updates[k]
        w = w + torch.tensor(sum(updates.values()) / 2)
    close(held.shared(done), w)
    close(held.simulation(done).attackers.memory["1.delta"], torch.tensor(memory))


def test_noise_of_the_server_has_an_address(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    method = NoisyFedAvg(lr=LR, steps=3, batch=None, weighted=False, sigma=0.3)
    done = run(method, task=point, data=points, rounds=4, chunk=1)
    w = point.start()
    for t in range(1, 5):
        z = normal(SEED, "public", t, "noise", torch.arange(2))
        w = w + sum(pulled(w, mean) for mean in means) / N + 0.3 * z
    close(held.shared(done), w)


def test_private_noise_follows_from_the_secret_and_from_nothing_else(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    method = PrivateFedAvg(lr=LR, steps=3, batch=None, weighted=False, sigma=0.3)

    def ends(**how: Any) -> Tensor:
        w = held.shared(run(method, task=point, data=points, **how))
        return w

    same = ends(secret=7)
    assert torch.equal(same, ends(secret=7)) and torch.equal(same, ends(secret=7, chunk=1))
    assert not torch.equal(same, ends(secret=8))
    assert not torch.equal(ends(), ends()), "without a secret, the system draws one"
    root = Context(0, SEED, N, point.layout, point.start(), 7)
    w, mask = point.start(), root.of_parties(torch.arange(N)).private.normal("first", (2,))
    for t in (1, 2, 3):
        new = root.at(t).of_parties(torch.arange(N)).private.normal("mask", (2,))
        z = root.at(t).of_server().private.normal("noise", (2,))
        w = w + (pulled(w, means) + 0.3 * (new - mask)).mean(0) + 0.3 * z
        mask = new
    close(same, w)
    assert len(torch.unique(torch.cat([mask.flatten(), z]))) == 2 * N + 2, "every party has a secret of its own"


def test_a_forged_loss_travels_like_any_other(run: Any, point: Task, points: FederatedData) -> None:
    """What an aggregator asks for is a leaf of the message: a codec halves it too."""
    done = run(PLAIN, task=point, data=points, rounds=2, aggregator=KLoss(k=1), codec=Float16())
    assert [row["bytes_up"] for row in done.history.rounds] == [N * (2 + 1) * 2] * 2
