"""Mimic: attackers copy the benign client that is furthest along the direction of greatest variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant import FederatedData, Task, simulate
from descant.attacks import Mimic
from descant.context import Context
from descant.draws import normal
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import FedAvg
from descant.task import Layout
from descant.trees import Tree
from tests.attacks.oracle import SEED, Vector, locally, shared


def posted(x: Vector, clients: list[int], round: int) -> Mail:
    ctx = Context(round, SEED, 100, Layout((), ()), torch.zeros(1, dtype=torch.float64))
    rows = torch.as_tensor(x)
    return Mail.of({"x": rows, "n": torch.arange(len(rows)), "y": rows[:, :1]}, torch.tensor(clients), ctx)


class Loop:
    """The same in plain NumPy, client by client."""

    def __init__(self, d: int, warmup: int) -> None:
        z = np.array([float(normal(SEED, "public", 0, "mimic", j)) for j in range(d)])
        self.z, self.mu, self.t, self.client, self.warmup = z / np.linalg.norm(z), np.zeros(d), 0, -1, warmup

    def copies(self, x: Vector, clients: list[int]) -> int:
        if self.t >= self.warmup and self.client in clients:
            return clients.index(self.client)
        if self.t < self.warmup:
            self.mu = self.t / (self.t + 1) * self.mu + x.mean(0) / (self.t + 1)
            u = np.zeros_like(self.mu)
            for row in x:
                u += np.dot(row - self.mu, self.z) * (row - self.mu)
            if np.linalg.norm(u) > 0:
                z = self.t / (self.t + 1) * self.z + u / np.linalg.norm(u) / (self.t + 1)
                self.z = z / np.linalg.norm(z)
        place = max(range(len(x)), key=lambda i: float(np.dot(x[i], self.z)))
        if self.t < self.warmup:
            self.client, self.t = clients[place], self.t + 1
        return place


@given(st.integers(1, 5), st.integers(2, 8), st.integers(1, 6), st.integers(0, 999))
def test_it_copies_whom_a_plain_loop_copies(warmup: int, B: int, d: int, seed: int) -> None:
    """Clients come and go: also the one that is copied."""
    g = np.random.default_rng(seed)
    attack, loop, memory = Mimic(warmup=warmup), Loop(d, warmup), Tree()
    centres = g.normal(size=(9, d)) * 2
    for t in range(1, warmup + 5):
        clients = sorted(g.choice(9, size=B, replace=False).tolist())
        x = centres[clients] + g.normal(size=(B, d))
        mail, benign = posted(np.zeros((2, d)), [20, 21], t), posted(x, clients, t)
        memory, sent = attack.forge(mail.ctx, memory, mail, benign)
        place = loop.copies(x, clients)
        np.testing.assert_array_equal(sent["x"].numpy(), np.tile(x[place], (2, 1)))
        np.testing.assert_array_equal(sent["y"].numpy(), np.tile(x[place, :1], (2, 1)))
        assert sent["n"].tolist() == [0, 1] and sent.form == mail.form, "whole numbers stay"
        assert float(memory["z"].norm()) == pytest.approx(1.0, rel=1e-12)


def test_its_direction_is_that_of_the_greatest_variance() -> None:
    """After many rounds z is the first eigenvector of the clients' covariance, up to its sign."""
    g = np.random.default_rng(3)
    spread = np.diag([3.0, 1.0, 0.5, 0.2]) @ np.linalg.qr(g.normal(size=(4, 4)))[0]
    x, memory, attack = g.normal(size=(40, 4)) @ spread + 1.0, Tree(), Mimic(warmup=200)
    for t in range(1, 201):
        memory, _ = attack.forge(
            posted(x[:1], [50], t).ctx, memory, posted(x[:1], [50], t), posted(x, [*range(40)], t)
        )
    first = np.linalg.eigh(np.cov(x.T))[1][:, -1]
    assert abs(float(memory["z"].numpy() @ first)) > 0.999


def test_without_others_attackers_are_honest_and_equal_clients_are_no_trouble() -> None:
    honest, nobody = posted(np.ones((2, 3)), [1, 2], 1), posted(np.ones((0, 3)), [], 1)
    memory, sent = Mimic().forge(honest.ctx, {}, honest, nobody)
    assert not memory and torch.equal(sent["x"], honest["x"])
    memory, sent = Mimic().forge(honest.ctx, {}, honest, posted(np.full((4, 3), 2.0), [3, 4, 5, 6], 1))
    assert bool(memory["z"].isfinite().all()) and sent["x"].tolist() == [[2.0] * 3] * 2


def test_in_a_run_the_attackers_say_what_one_benign_client_says(labelled: FederatedData, linear: Task) -> None:
    plain = FedAvg(lr=0.1, steps=2, batch=None, weighted=False)
    how: dict[str, Any] = {"rounds": 3, "seed": SEED, "evaluate": 3, "mode": "vmap", "malicious": (1, 4)}
    w, loop = linear.start().numpy(), Loop(15, 2)
    for _ in range(3):
        own = locally(w, labelled, 0.1, 2)
        benign = np.array([own[k] - w for k in (0, 2, 3)])
        copied = benign[loop.copies(benign, [0, 2, 3])]
        w = w + (benign.sum(0) + 2 * copied) / 5
    done = simulate(linear, labelled, plain, attacks=Mimic(warmup=2), **how)
    np.testing.assert_allclose(shared(done), w, rtol=1e-10, atol=1e-12)


def test_a_warm_up_takes_a_round_at_least() -> None:
    with pytest.raises(SettingError, match="warmup = 0"):
        Mimic(warmup=0)
