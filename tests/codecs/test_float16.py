"""Half precision: half the bytes, and what is lost is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CODECS, CodecError, Float16, Native
from descant.mail import Form

TYPES = (torch.float64, torch.float32, torch.bfloat16)


@given(st.lists(st.floats(width=16), max_size=6), st.sampled_from(TYPES[:2]))
def test_numbers_of_half_precision_come_back_as_they_were(post: Any, row: list[float], dtype: torch.dtype) -> None:
    leaf = torch.tensor([row], dtype=dtype)
    back = returned(Float16(), post({"x": leaf}))["x"]
    assert back.dtype == dtype
    assert torch.equal(back.nan_to_num(nan=12345.0), leaf.nan_to_num(nan=12345.0))


@given(st.lists(st.floats(-65504, 65504), min_size=1, max_size=6))
def test_others_are_rounded(post: Any, row: list[float]) -> None:
    leaf = torch.tensor([row], dtype=torch.float64)
    back = returned(Float16(), post({"x": leaf}))["x"]
    assert bool(((back - leaf).abs() <= leaf.abs() * 2.0**-11 + 2.0**-25).all())


def test_what_is_too_large_becomes_infinite(post: Any) -> None:
    leaf = torch.tensor([[1e5, -1e300, 5e-324]], dtype=torch.float64)
    assert returned(Float16(), post({"x": leaf}))["x"].tolist() == [[float("inf"), -float("inf"), 0.0]]


def test_whole_numbers_travel_as_they_are(post: Any) -> None:
    message = {"x": torch.randn(3, 4), "n": torch.tensor([70_000, 3, 2**30], dtype=torch.int32)}
    back = returned(Float16(), post(message))
    assert torch.equal(back["n"], message["n"])
    mail = post(message)
    assert {len(p) for p in Float16().encode(mail.ctx, {}, mail)[1]} == {Float16().size(mail.form)} == {4 * 2 + 4}


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2,), (2, 1, 0)])
def test_empty_leaves(post: Any, shape: tuple[int, ...]) -> None:
    assert returned(Float16(), post({"x": torch.zeros(shape)}))["x"].shape == shape


@given(st.lists(st.binary(max_size=12), max_size=3), st.sampled_from([Native(), Float16()]))
def test_whatever_arrives_is_read_or_refused(post: Any, payloads: list[bytes], codec: Any) -> None:
    leaves: dict[str, Tensor] = {"x": torch.zeros(len(payloads), 2), "b": torch.zeros(len(payloads)).bool()}
    mail = blank(post(leaves))
    length = codec.size(Form.of(leaves))
    try:
        read = codec.decode(mail.ctx, {}, payloads, mail)[1]
    except CodecError:
        assert any(len(payload) != length for payload in payloads)
    else:
        assert read.form == mail.form and all(len(payload) == length for payload in payloads)


def test_it_is_known_by_its_name() -> None:
    assert CODECS["float16"] is Float16
