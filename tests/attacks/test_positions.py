"""Attacks on where a message stands: the papers forge w_k itself, and FedAvg here sends w_k - w."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant import FederatedData, Run, Task, simulate
from descant.attacks import Attack, Gaussian, RandomScale, SameValue, SignFlip
from descant.context import Context
from descant.mail import Mail
from descant.methods import FLAME, Ditto, FedAvg, FedPlus, LpProj, Method, Scaffold
from descant.task import Layout
from tests.attacks.oracle import SEED, Vector, drawn, locally, shared, trained

LR, STEPS, ATTACKERS = 0.1, 2, (1, 4)
PLAIN = FedAvg(lr=LR, steps=STEPS, batch=None, weighted=False)
# What the papers' code sends in the place of w_k: in round t, of client k, from its own w_k and the w it received.
SENT: dict[str, tuple[Attack, Callable[[int, int, Vector, Vector], Vector]]] = {
    "same value": (
        SameValue(tau=100.0, on="position"),
        lambda t, k, w_k, w: 100 * drawn("same-value", t, k) * np.ones_like(w_k),
    ),
    "sign flip": (
        SignFlip(tau=10.0, on="position"),
        lambda t, k, w_k, w: -abs(10 * drawn("sign-flip", t, k)) * w_k,
    ),
    "gaussian": (
        Gaussian(tau=100.0, on="position"),
        lambda t, k, w_k, w: 100 * drawn("gaussian.delta", t, k, len(w_k)),
    ),
    "random scale": (
        RandomScale(tau=20.0, on="position"),
        lambda t, k, w_k, w: 20 * drawn("random-scale", t, k) * w_k,
    ),
    "sign flip of what was received": (
        SignFlip(tau=1.0, of="received", on="position"),
        lambda t, k, w_k, w: -abs(drawn("sign-flip", t, k)) * w,
    ),
}


def run(task: Task, data: FederatedData, method: Method, **how: Any) -> Run:
    fixed = {"rounds": 2, "seed": SEED, "evaluate": 2, "mode": "vmap", "malicious": ATTACKERS}
    return simulate(task, data, method, **fixed | how)


@pytest.mark.parametrize("case", SENT)
def test_the_model_of_fedavg_is_the_mean_of_the_models_that_the_papers_code_sends(
    labelled: FederatedData, linear: Task, case: str
) -> None:
    attack, sent = SENT[case]
    w = linear.start().numpy()
    for t in (1, 2):
        own = locally(w, labelled, LR, STEPS)
        w = np.mean([sent(t, k, w_k, w) if k in ATTACKERS else w_k for k, w_k in enumerate(own)], axis=0)
    found = shared(run(linear, labelled, PLAIN, attacks=attack))
    np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-10)
    found = shared(run(linear, labelled, Ditto(solver=PLAIN, steps=1), attacks=attack))
    np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-10)


def test_medians_and_weights_see_the_points_too(labelled: FederatedData, linear: Task) -> None:
    attack, sent = SENT["sign flip"]
    w, own = linear.start().numpy(), locally(linear.start().numpy(), labelled, LR, STEPS)
    points = [sent(1, k, w_k, w) if k in ATTACKERS else w_k for k, w_k in enumerate(own)]
    how: dict[str, Any] = {"rounds": 1, "attacks": attack}
    median = shared(run(linear, labelled, PLAIN, aggregator="coordinate-median", **how))
    np.testing.assert_allclose(median, np.median(points, axis=0), rtol=1e-10, atol=1e-10)
    weighted = FedAvg(lr=LR, steps=STEPS, batch=None)
    mean = np.average(points, axis=0, weights=labelled.train.sizes.numpy())
    np.testing.assert_allclose(shared(run(linear, labelled, weighted, **how)), mean, rtol=1e-10, atol=1e-10)


def test_scaffolds_control_variate_is_hit_as_well(labelled: FederatedData, linear: Task) -> None:
    """What is forged is w + dw_k and c + dc_k, so that w and c are the means of points."""
    w, c, own = linear.start().numpy(), np.zeros(15), np.zeros((5, 15))
    for t in (1, 2):
        points, variates = [], []
        for k in range(5):
            x, y = (part.numpy() for part in labelled.train.client(k))
            w_k = trained(w, x, y, LR, STEPS, c - own[k])
            new = own[k] - c + (w - w_k) / (STEPS * LR)
            forged = 100 * drawn("same-value", t, k) * np.ones(15)
            points.append(forged if k in ATTACKERS else w_k)
            variates.append(forged if k in ATTACKERS else c + new - own[k])
            own[k] = new
        w, c = np.mean(points, axis=0), np.mean(variates, axis=0)
    method = Scaffold(lr=LR, steps=STEPS, batch=None)
    found = shared(run(linear, labelled, method, attacks=SENT["same value"][0]))
    np.testing.assert_allclose(found, w, rtol=1e-10, atol=1e-10)


def test_flame_turns_around_the_model_that_an_attacker_received(labelled: FederatedData, linear: Task) -> None:
    """With everyone malicious, w is the mean of -|c_k| w, round after round, whatever they train."""
    done = run(linear, labelled, FLAME(steps=1), malicious=5, attacks=SENT["sign flip of what was received"][0])
    w = linear.start().numpy()
    for t in (1, 2):
        w = w * np.mean([-abs(drawn("sign-flip", t, k)) for k in range(5)])
    np.testing.assert_allclose(shared(done), w, rtol=1e-10)


@pytest.mark.parametrize(
    "method", [LpProj(steps=2, dim=3), FLAME(steps=2), FedPlus(steps=2)], ids=lambda method: method.name
)
def test_of_a_method_that_sends_points_the_position_is_the_message(
    labelled: FederatedData, linear: Task, method: Method
) -> None:
    at, message = (run(linear, labelled, method, attacks=SignFlip(on=on)) for on in ("position", "message"))
    spent = ("round", "client", "model", "train_loss", "test_accuracy")
    assert at.clients.select(spent).equals(message.clients.select(spent))


@given(st.integers(1, 5), st.integers(0, 999), st.booleans())
def test_to_place_a_message_where_it_stands_changes_nothing(M: int, seed: int, each: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    x, heard = (torch.randn(n, 3, generator=g, dtype=torch.float64) for n in (M, M if each else 1))
    ctx = Context(1, SEED, M, Layout((), ()), torch.zeros(1, dtype=torch.float64))
    leaves = {"d": x, "p": x, "n": torch.ones(M, dtype=torch.int32)}
    mail = Mail(leaves, torch.arange(M), ctx, torch.ones(M), heard={"d": heard, "p": heard}, differences=("d",))
    points = mail.positions()
    assert torch.equal(points["d"], x + heard) and torch.equal(points["p"], x) and set(points) == {"d", "p"}
    back = mail.placed(points)
    torch.testing.assert_close(back["d"], x, rtol=0, atol=1e-12)
    assert torch.equal(back["p"], x) and torch.equal(back["n"], mail["n"])
    some = torch.arange(M) % 2 == 0
    assert torch.equal(mail.only(some).positions()["d"], points["d"][some])
