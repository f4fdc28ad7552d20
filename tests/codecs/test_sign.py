"""Signs with one scale: the paper's algorithm, a bit a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import Sign
from descant.mail import Mail


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


def test_it_is_a_plain_loop_over_rounds_and_clients(post: Any) -> None:
    """Karimireddy et al., 2019, Algorithm 1: p = g + e, sent ||p||_1 / d sign(p), e = p - sent."""
    codec, generator = Sign(), np.random.default_rng(0)
    memory, owed = codec.memory({"x": torch.zeros(3, 21).double()}), np.zeros((3, 21))
    for _ in range(6):
        g = generator.normal(size=(3, 21))
        mail = updates(post, torch.from_numpy(g))
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
        for k in range(3):
            p = g[k] + owed[k]
            sent = np.array([np.abs(p).sum() / 21 * (-1 if number < 0 else 1) for number in p])
            np.testing.assert_allclose(back[k].numpy(), sent, rtol=1e-14)
            owed[k] = p - sent
        np.testing.assert_allclose(memory["x.residual"].numpy(), owed, rtol=0, atol=1e-13)
        assert [len(payload) for payload in payloads] == [8 + 3] * 3, "a scale, and 21 bits"


def test_it_contracts_as_the_paper_says(post: Any) -> None:
    """Lemma 8: ||p - C(p)||^2 = (1 - ||p||_1^2 / (d ||p||_2^2)) ||p||_2^2."""
    p = torch.randn(5, 99, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left = (p - returned(Sign(), updates(post, p))["x"]).square().sum(1)
    assert torch.allclose(left, p.square().sum(1) - p.abs().sum(1).square() / 99, rtol=1e-12)


def test_without_feedback_nothing_is_remembered(post: Any) -> None:
    mail = updates(post, torch.tensor([[3.0, -1.0, 0.0, -4.0]]))
    assert Sign(feedback=False).memory(mail.updates()) == {}
    assert returned(Sign(feedback=False), mail)["x"].tolist() == [[2.0, -2.0, 2.0, -2.0]]
