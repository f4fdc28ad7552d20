"""Attacks on messages: what each sends, leaf by leaf."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor

import descant as dc
from descant import FederatedData, Task, simulate
from descant.attacks import (
    ALIE,
    ATTACKS,
    Attack,
    Gaussian,
    InnerProduct,
    MinMax,
    MinSum,
    RandomScale,
    RandomUpdate,
    Replacement,
    SameValue,
)
from descant.context import Context
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import FLAME, Ditto, FedAvg, FedPlus, LpProj, Method
from descant.task import Layout

MANY = 20_000


def posted(leaf: Tensor, first: int = 0, round: int = 1, start: float = 0.0) -> Mail:
    """Messages of one leaf that moved away from `start`, and a whole number beside it."""
    ctx = Context(round, 5, 2 * MANY, Layout((), ()), torch.zeros(1, dtype=torch.float64))
    clients = torch.arange(first, first + len(leaf))
    mail = Mail.of({"x": leaf, "n": torch.full((len(leaf),), 7, dtype=torch.int32)}, clients, ctx)
    return replace(mail, references={"x": torch.full_like(leaf[:1], start)})


def forged(attack: Attack, mail: Mail, benign: Mail | None = None) -> Tensor:
    back = attack.forge(mail.ctx, {}, mail, mail.only(mail.clients < 0) if benign is None else benign)[1]
    assert back["n"].tolist() == [7] * len(mail.clients), "whole numbers stay"
    assert back.form == mail.form
    return back["x"]


def close_to_normal(values: Tensor, tau: float) -> None:
    """Mean and mean square of N(0, tau^2), within four standard errors."""
    n = values.numel()
    assert abs(float(values.mean())) <= 4 * tau / n**0.5
    assert abs(float(values.square().mean()) - tau**2) <= 4 * tau**2 * (2 / n) ** 0.5


def test_the_same_value_is_drawn_for_each_attacker_and_round() -> None:
    honest = torch.randn(MANY, 3, dtype=torch.float64)
    sent = forged(SameValue(tau=100.0), posted(honest))
    assert bool((sent == sent[:, :1]).all())
    close_to_normal(sent[:, 0], 100.0)
    assert not torch.equal(sent, forged(SameValue(tau=100.0), posted(honest, round=2)))


def test_gaussian_messages_are_drawn_for_each_coordinate() -> None:
    sent = forged(Gaussian(tau=100.0), posted(torch.ones(MANY, 3, dtype=torch.float64)))
    close_to_normal(sent, 100.0)
    correlation = np.corrcoef(sent.numpy().T)
    assert abs(correlation - np.eye(3)).max() < 4 / MANY**0.5


def test_a_random_scale_has_a_random_sign() -> None:
    honest = torch.full((MANY, 2), 3.0, dtype=torch.float64)
    sent = forged(RandomScale(tau=20.0), posted(honest))
    assert torch.equal(sent[:, 0], sent[:, 1])
    close_to_normal(sent[:, 0] / 3, 20.0)


def test_a_random_update_is_as_large_as_the_attackers_own() -> None:
    """Ditto's A2: what is replaced is the update, and its size is that of the attacker's."""
    spread = torch.tensor([[1.0, -1.0], [10.0, -10.0]], dtype=torch.float64).repeat(MANY // 2, 1)
    sent = forged(RandomUpdate(), posted(spread + 50.0, start=50.0)) - 50.0
    close_to_normal(sent[0::2], 1.0)
    close_to_normal(sent[1::2], 10.0)


def test_replacement_scales_the_update_by_the_number_of_messages() -> None:
    honest, others = torch.randn(2, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    mail, benign = posted(honest, start=1.5), posted(others, first=2, start=1.5)
    torch.testing.assert_close(forged(Replacement(), mail, benign), 1.5 + 8 * (honest - 1.5))
    torch.testing.assert_close(forged(Replacement(factor=3.0), mail, benign), 1.5 + 3 * (honest - 1.5))
    torch.testing.assert_close(forged(Replacement(factor=3.0, on="message"), mail, benign), 3 * honest)


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 999))
def test_alie_is_mean_minus_z_standard_deviations(B: int, m: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    others, own = torch.randn(B, 4, generator=g, dtype=torch.float64), torch.zeros(m, 4, dtype=torch.float64)
    n = B + m
    share = min(max((n - m - (n // 2 + 1 - m)) / (n - m), 1e-6), 1 - 1e-6)
    for attack, z in ((ALIE(), norm.ppf(share)), (ALIE(z=1.5), 1.5)):
        sent = forged(attack, posted(own), posted(others, first=m)).numpy()
        expected = others.numpy().mean(0) - z * others.numpy().std(0)
        np.testing.assert_allclose(sent, np.tile(expected, (m, 1)), rtol=1e-9, atol=1e-12)


def test_ipm_points_against_the_mean() -> None:
    others = torch.randn(5, 4, dtype=torch.float64) + 2
    sent = forged(
        InnerProduct(epsilon=0.3), posted(torch.zeros(2, 4).double(), start=2.0), posted(others, 2, start=2.0)
    )
    torch.testing.assert_close(sent[0], 2.0 - 0.3 * (others - 2.0).mean(0))
    assert torch.equal(sent[0], sent[1])


@pytest.mark.few(1)
@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
@given(st.integers(2, 9), st.integers(0, 999))
def test_min_max_and_min_sum_go_as_far_as_they_may(direction: Any, B: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    others = torch.randn(B, 4, generator=g, dtype=torch.float64)
    x = others.numpy()
    off = ((x[:, None] - x) ** 2).sum(-1)
    for attack in (MinMax(direction=direction), MinSum(direction=direction)):
        sent = forged(attack, posted(torch.zeros(2, 4).double()), posted(others, first=2))[0].numpy()
        away = ((x - sent) ** 2).sum(1)
        reached, allowed = (away.sum(), off.sum(1).max()) if isinstance(attack, MinSum) else (away.max(), off.max())
        assert reached == pytest.approx(allowed, rel=1e-6), "the bound is met"
        mean = x.mean(0)
        p = {"std": x.std(0), "unit": mean / np.linalg.norm(mean), "sign": np.sign(mean)}[direction]
        gamma = (mean - sent) @ p / (p @ p)
        np.testing.assert_allclose(sent, mean - gamma * p, rtol=1e-9, atol=1e-9)
        assert gamma >= 0


def test_without_a_benign_message_those_who_know_the_others_are_honest() -> None:
    honest = torch.randn(2, 3, dtype=torch.float64)
    for attack in (ALIE(), InnerProduct(), MinMax(), MinSum()):
        assert torch.equal(forged(attack, posted(honest)), honest)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"random-labels", "flipped-labels"}))
@pytest.mark.parametrize(
    "method",
    [
        FedAvg(steps=2),
        Ditto(steps=2, solver=FedAvg(steps=2)),
        LpProj(steps=2, dim=3),
        FLAME(steps=2),
        FedPlus(steps=2),
    ],
    ids=lambda m: m.name,
)
def test_an_attack_hits_what_the_method_sends(
    linear: dc.Task, labelled: dc.FederatedData, method: Method, name: str
) -> None:
    how: dict[str, Any] = {"rounds": 4, "evaluate": 4, "mode": "vmap"}
    clean = dc.simulate(linear, labelled, method, **how)
    attacked = dc.simulate(linear, labelled, method, attacks=name, malicious=2, **how)
    assert clean.rounds["bytes_up"].equals(attacked.rounds["bytes_up"])
    benign = attacked.history.federation.members("benign")
    honest = clean.clients.filter(clean.clients["model"] == "personal")["train_loss"].to_numpy()[-len(benign) :]
    hurt = attacked.clients.filter(attacked.clients["model"] == "personal")["train_loss"].to_numpy()[-len(benign) :]
    assert attacked.collapse is not None or not np.array_equal(honest[benign], hurt[benign])


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("same-value", "tau", 0.0),
        ("gaussian", "tau", float("inf")),
        ("random-scale", "tau", -1.0),
        ("replacement", "factor", 0.0),
        ("ipm", "epsilon", -0.1),
        ("alie", "z", float("nan")),
        ("min-max", "direction", "up"),
        ("gaussian", "on", "leaf"),
    ],
)
def test_impossible_settings_are_refused(name: str, field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=field):
        ATTACKS[name](**{field: value})


@pytest.mark.parametrize("name", ["alie", "ipm", "min-max", "min-sum", "mimic", "random-update", "same-value"])
def test_a_message_without_numbers_can_be_forged(labelled: FederatedData, linear: Task, name: str) -> None:
    """Of a reference in a subspace of no dimension; and so that nothing warns of deviations of nothing."""
    how: dict[str, Any] = {"rounds": 2, "mode": "vmap", "malicious": 4}
    run = simulate(linear, labelled, LpProj(dim=0, steps=1), attacks=name, **how)
    assert run.collapse is None and [row["refused"] for row in run.rounds.to_dicts()] == [0, 0]
