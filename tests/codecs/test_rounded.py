"""Narrower types: fewer bytes, and what is lost is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CODECS, BFloat16, Codec, CodecError, Float16, Float32, Native
from descant.mail import Form

# Each with its largest number, the bits of its precision, and its smallest number.
ROUNDED = [
    (Float32(), torch.float32, (2 - 2.0**-23) * 2.0**127, 24, 2.0**-149),
    (Float16(), torch.float16, 65504.0, 11, 2.0**-24),
    (BFloat16(), torch.bfloat16, (2 - 2.0**-7) * 2.0**127, 8, 2.0**-133),
]
EACH = pytest.mark.parametrize("case", ROUNDED, ids=lambda case: case[0].name)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(nan=12345.0), b.nan_to_num(nan=12345.0))


@EACH
@given(st.lists(st.floats(width=32), max_size=6))
def test_numbers_of_its_type_come_back_as_they_were(post: Any, case: Any, row: list[float]) -> None:
    codec, dtype, *_ = case
    leaf = torch.tensor([row], dtype=torch.float32).to(dtype).double()
    back = returned(codec, post({"x": leaf}))["x"]
    assert back.dtype == torch.float64 and same(back, leaf)


@EACH
@given(st.lists(st.floats(-65504, 65504), min_size=1, max_size=6))
def test_others_are_rounded(post: Any, case: Any, row: list[float]) -> None:
    codec, _, _, precision, smallest = case
    leaf = torch.tensor([row], dtype=torch.float64)
    back = returned(codec, post({"x": leaf}))["x"]
    assert bool(((back - leaf).abs() <= leaf.abs() * 2.0**-precision + smallest / 2).all())


@EACH
def test_what_is_too_large_becomes_infinite(post: Any, case: Any) -> None:
    codec, _, largest, *_ = case
    leaf = torch.tensor([[largest, 1.1 * largest, -1e300, 5e-324]], dtype=torch.float64)
    assert returned(codec, post({"x": leaf}))["x"].tolist() == [[largest, float("inf"), -float("inf"), 0.0]]


@EACH
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_what_is_no_wider_travels_as_it_is(post: Any, case: Any, kind: torch.dtype) -> None:
    codec, dtype, *_ = case
    leaf = (torch.randn(2, 5, generator=torch.Generator().manual_seed(1)) * 100).to(kind)
    mail = post({"x": leaf})
    payloads = codec.encode(mail.ctx, {}, mail)[1]
    narrowed = kind.is_floating_point and kind.itemsize > dtype.itemsize
    assert {len(p) for p in payloads} == {codec.size(mail.form)} == {5 * (dtype if narrowed else kind).itemsize}
    back = returned(codec, mail)["x"]
    assert back.dtype == kind and torch.equal(back, leaf.to(dtype).to(kind) if narrowed else leaf)


def test_whole_numbers_travel_as_they_are(post: Any) -> None:
    message = {"x": torch.randn(3, 4), "n": torch.tensor([70_000, 3, 2**30], dtype=torch.int32)}
    back = returned(Float16(), post(message))
    assert torch.equal(back["n"], message["n"])
    mail = post(message)
    assert {len(p) for p in Float16().encode(mail.ctx, {}, mail)[1]} == {Float16().size(mail.form)} == {4 * 2 + 4}


@EACH
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2,), (2, 1, 0)])
def test_empty_leaves(post: Any, case: Any, shape: tuple[int, ...]) -> None:
    assert returned(case[0], post({"x": torch.zeros(shape)}))["x"].shape == shape


@given(st.lists(st.binary(max_size=12), max_size=3), st.sampled_from([Native(), Float32(), Float16(), BFloat16()]))
def test_whatever_arrives_is_read_or_refused(post: Any, payloads: list[bytes], codec: Codec) -> None:
    leaves: dict[str, Tensor] = {"x": torch.zeros(len(payloads), 2), "b": torch.zeros(len(payloads)).bool()}
    mail = blank(post(leaves))
    length = codec.size(Form.of(leaves))
    try:
        read = codec.decode(mail.ctx, {}, payloads, mail)[1]
    except CodecError:
        assert any(len(payload) != length for payload in payloads)
    else:
        assert read.form == mail.form and all(len(payload) == length for payload in payloads)


def test_they_are_known_by_their_names() -> None:
    assert [CODECS[name] for name in ("float32", "float16", "bfloat16")] == [Float32, Float16, BFloat16]
