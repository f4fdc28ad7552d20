"""Random-k: the right mean, the variance of the paper, and indices that cost nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from toys.post import returned

from descant.codecs import RandomK
from descant.draws import bits
from descant.mail import Mail


def updates(post: Any, leaf: Tensor, round: int = 1) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return replace(mail, ctx=mail.ctx.at(round))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_mean_of_what_arrives_is_what_was_sent(post: Any, share: float) -> None:
    """Every mean is within six standard errors: of a right codec's 40 numbers one is not with a chance of 1e-7."""
    v = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    back = returned(RandomK(share=share, feedback=False), updates(post, v.expand(20_000, -1)))["x"]
    error = v.abs() * ((1 / share - 1) / len(back)) ** 0.5  # exactly: each number is n / k times itself or zero
    assert bool(((back.mean(0) - v).abs() <= 6 * error).all())
    variance = float((back - v).square().sum(1).mean())
    assert variance == pytest.approx((1 / share - 1) * float(v.square().sum()), rel=0.02)


def test_with_feedback_entries_arrive_as_they_are(post: Any) -> None:
    """And the squared length of what is left is 1 - k / n of what there was, on average: it contracts."""
    v = torch.randn(50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    back = returned(RandomK(share=0.2), updates(post, v.expand(5_000, -1)))["x"]
    assert bool(((back == 0) | (back == v)).all()) and bool(((back != 0).sum(1) == 10).all())
    left = float((v - back).square().sum(1).mean())
    assert left == pytest.approx((1 - 10 / 50) * float(v.square().sum()), rel=0.02)


def test_the_entries_are_those_with_the_least_numbers_drawn(post: Any) -> None:
    leaf = torch.arange(1.0, 13.0).repeat(3, 1)
    for round in (1, 2):
        back = returned(RandomK(share=0.25), updates(post, leaf, round))["x"]
        for k in range(3):
            order = sorted(range(12), key=lambda i: int(bits(0, "each", round, "random-k x 0", k, i)))
            assert sorted(back[k].nonzero()[:, 0].tolist()) == sorted(order[:3])


def test_a_message_is_its_values(post: Any) -> None:
    mail = updates(post, torch.randn(2, 1000))
    payloads = RandomK(share=0.05).encode(mail.ctx, RandomK().memory(mail.updates()), mail)[1]
    assert [len(payload) for payload in payloads] == [50 * 4] * 2
