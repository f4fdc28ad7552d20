"""Uniform quantisation of updates that are rotated first: the same bytes, and the right mean from one bit on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import Uniform
from descant.draws import bits as hashed
from descant.mail import Mail
from descant.rotation import rotated


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


def turned(v: Tensor) -> np.ndarray:
    """R v, with the rotation that all senders of the round have."""
    return rotated(v, hashed(0, "public", 1, "rotate x 0", torch.arange(1))[0]).numpy()


def test_one_bit_is_the_sign_of_a_rotated_number_and_the_span_makes_the_mean_right(post: Any) -> None:
    """DRIVE (Vargaftik et al., 2021), Algorithm 1: the signs of R v, and the scale ||v||^2 / ||R v||_1."""
    v = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 21)) ** 3)
    mail, codec = updates(post, v), Uniform(bits=1, nearest=True, rotate=True)
    _, payloads = codec.encode(mail.ctx, {}, mail)
    back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
    for k, payload in enumerate(payloads):
        y = turned(v)[k]
        span = float((v[k] ** 2).sum()) / np.abs(y).sum()
        assert np.frombuffer(payload[:8], np.float64)[0] == pytest.approx(span, rel=1e-12)
        assert (np.unpackbits(np.frombuffer(payload[8:], np.uint8), bitorder="little")[:21] == (y > 0)).all()
        assert len(payload) == 8 + 3
        assert float(back[k] @ v[k]) == pytest.approx(float(v[k] @ v[k]), rel=1e-12)
    np.testing.assert_allclose(turned(back), np.sign(turned(v)) * np.abs(turned(back)), atol=1e-12)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_a_rotation_costs_no_byte_and_no_sender_depends_on_another(post: Any, bits: int, nearest: bool) -> None:
    v = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))
    plain, codec = (Uniform(bits=bits, nearest=nearest, rotate=rotate) for rotate in (False, True))
    mail = updates(post, v)
    lengths = [[len(payload) for payload in c.encode(mail.ctx, {}, mail)[1]] for c in (plain, codec)]
    assert lengths[0] == lengths[1]
    first = updates(post, v[:1])
    assert codec.encode(first.ctx, {}, first)[1] == codec.encode(mail.ctx, {}, mail)[1][:1]


def test_of_a_few_large_numbers_one_bit_keeps_more_when_they_are_rotated(post: Any) -> None:
    """Signs of small numbers say as much as those of large ones, and nothing that matters."""
    v = torch.full((1, 4096), 0.01, dtype=torch.float64)
    v[0, ::512] = 10.0
    plain, turned = (
        returned(Uniform(bits=1, nearest=True, rotate=r), updates(post, v))["x"] for r in (False, True)
    )
    share = [float((x * v).sum() ** 2 / (x.square().sum() * v.square().sum())) for x in (plain, turned)]
    assert share[0] < 0.01 and share[1] > 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_keep_their_type_and_nothing_stays_nothing(post: Any, dtype: torch.dtype) -> None:
    codec = Uniform(bits=16, nearest=True, rotate=True)
    leaf = torch.linspace(-1, 1, 9)[None].to(dtype)
    back = returned(codec, updates(post, leaf))["x"]
    assert back.dtype == dtype and float((back.double() - leaf.double()).abs().max()) < 0.01
    for none in (torch.zeros(2, 5, dtype=dtype), torch.zeros(2, 0, dtype=dtype)):
        assert torch.equal(returned(codec, updates(post, none))["x"], none)
