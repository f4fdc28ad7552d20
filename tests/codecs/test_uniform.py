"""Uniform quantisation: the same few bits a number, the same bytes a message, the right mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CodecError, Uniform
from descant.draws import bits as hashed
from descant.errors import SettingError
from descant.mail import Mail


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


@pytest.mark.parametrize(("bits", "span"), [(3, None), (8, None), (4, 2.0), (1, 0.5)])
def test_it_is_a_plain_loop_over_clients_and_numbers(post: Any, bits: int, span: float | None) -> None:
    v = np.random.default_rng(0).normal(size=(3, 21))
    mail = updates(post, torch.from_numpy(v))
    _, payloads = Uniform(bits=bits, span=span).encode(mail.ctx, {}, mail)
    back = Uniform(bits=bits, span=span).decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
    last, moved = 2**bits - 1, 0
    for k in range(3):
        s = max(abs(v[k])) if span is None else span
        words = [int(hashed(0, "each", 1, "uniform x 0", k, i)) % 2**64 for i in range(11)]
        for i, number in enumerate(v[k]):
            drawn = ((words[i // 2] >> 32 * (i % 2) & 0xFFFFFFFF) + 2**31) % 2**32
            exact = (min(max(number / s, -1), 1) + 1) * last / 2
            point = int(exact) + ((drawn + 0.5) / 2**32 < exact - int(exact))
            moved += point != round(exact)
            assert float(back[k, i]) == pytest.approx(s * (2 * point / last - 1), rel=1e-12)
    assert moved, "it is no rounding to the nearest"
    assert [len(payload) for payload in payloads] == [(8 if span is None else 0) + -(-21 * bits // 8)] * 3


def test_what_lies_on_the_grid_arrives_as_it_is(post: Any) -> None:
    signs = torch.tensor([[1.0, -1.0, -1.0, 1.0, 1.0]])
    assert torch.equal(returned(Uniform(bits=1, span=1.0), updates(post, signs))["x"], signs)
    halves = torch.arange(8.0)[None] - 3.5
    assert torch.equal(returned(Uniform(bits=3, span=3.5), updates(post, halves))["x"], halves)
    zero = torch.zeros(2, 5)
    assert torch.equal(returned(Uniform(), updates(post, zero))["x"], zero)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_numbers_keep_their_type(post: Any, dtype: torch.dtype) -> None:
    leaf = torch.linspace(-1, 1, 9)[None].to(dtype)
    back = returned(Uniform(bits=8), updates(post, leaf))["x"]
    assert back.dtype == dtype and float((back.double() - leaf.double()).abs().max()) < 2 / 255 + 0.005


@pytest.mark.parametrize("payload", [b"", b"\0" * 8, b"\0" * 14])
def test_payloads_of_another_length_are_refused(post: Any, payload: bytes) -> None:
    mail = updates(post, torch.ones(1, 9))
    with pytest.raises(CodecError, match=f"a payload of {len(payload)} bytes arrived where 13 were expected"):
        Uniform().decode(mail.ctx, {}, [payload], blank(mail))


@pytest.mark.parametrize("span", [-1.0, np.inf, np.nan])
def test_a_span_that_makes_no_sense_is_refused(post: Any, span: float) -> None:
    mail = updates(post, torch.ones(1, 9))
    with pytest.raises(CodecError, match="the span of a message must be finite, and zero or more"):
        Uniform().decode(mail.ctx, {}, [np.float32(span).tobytes() + b"\0" * 9], blank(mail))


def test_a_message_that_is_not_finite_is_refused(post: Any) -> None:
    mail = updates(post, torch.tensor([[1.0, torch.inf]]))
    with pytest.raises(CodecError, match="the update of 'x' is not finite"):
        Uniform().encode(mail.ctx, {}, mail)


@pytest.mark.parametrize(("field", "value"), [("bits", 0), ("bits", 17), ("span", 0.0)])
def test_fields_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"Uniform.{field} = "):
        Uniform(**{field: value})
