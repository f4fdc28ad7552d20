"""The native codec: numbers as they are, nothing more and nothing less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CODECS, CodecError, Native
from descant.mail import Form, Mail

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)  # () is a scalar; a 0 makes a leaf empty


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Tensor]:
    """Leaves [S, ...] of a few senders."""
    senders, leaves = draw(st.integers(0, 3)), {}
    for name in draw(st.lists(st.text(min_size=1, max_size=5), max_size=4, unique=True)):
        shape, dtype = (senders, *draw(shapes)), draw(st.sampled_from(DTYPES))
        values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 100
        leaves[name] = (values > 0) if dtype is torch.bool else values.abs().to(dtype)
    return leaves


def encoded(mail: Mail) -> list[bytes]:
    return Native().encode(mail.ctx, {}, mail)[1]


@given(messages())
def test_what_is_decoded_is_what_was_encoded(post: Any, message: dict[str, Tensor]) -> None:
    decoded = returned(Native(), post(message))
    assert list(decoded) == list(message)
    for name, leaf in message.items():
        assert decoded[name].dtype == leaf.dtype
        assert decoded[name].shape == leaf.shape
        assert torch.equal(decoded[name], leaf)


@given(messages())
def test_the_size_is_the_length_of_every_payload(post: Any, message: dict[str, Tensor]) -> None:
    mail = post(message)
    assert {len(payload) for payload in encoded(mail)} <= {Native().size(Form.of(message))}


def test_a_message_is_its_numbers_and_no_header(post: Any) -> None:
    message = {"delta": torch.tensor([[1.0, -2.5], [3.0, 4.0]]), "n": torch.tensor([7, 8], dtype=torch.int32)}
    rows = [message["delta"][k].numpy().tobytes() + message["n"][k].numpy().tobytes() for k in range(2)]
    assert encoded(post(message)) == rows
    assert Native().size(Form.of(message)) == 4 + 4 + 4
    assert Native().size(Form.of({name: leaf.double() for name, leaf in message.items()})) == 8 + 8 + 8


@pytest.mark.parametrize("senders", [1, 3])
def test_numbers_may_begin_anywhere(post: Any, senders: int) -> None:
    """One byte before them: where they begin is no multiple of their size."""
    message = {"flag": torch.ones(senders, dtype=torch.bool), "x": torch.randn(senders, 2, dtype=torch.float64)}
    assert torch.equal(returned(Native(), post(message))["x"], message["x"])


def test_every_bit_survives_the_way_even_of_what_is_not_finite(post: Any) -> None:
    leaf = torch.tensor([[float("nan"), float("inf"), -float("inf"), -0.0, 5e-324]], dtype=torch.float64)
    back = returned(Native(), post({"x": leaf}))["x"]
    assert torch.equal(back.view(torch.int64), leaf.view(torch.int64))


def test_a_leaf_that_lies_scattered_in_memory_is_sent_in_its_own_order(post: Any) -> None:
    leaf = torch.arange(12.0).view(3, 4).T[::2]
    assert torch.equal(returned(Native(), post({"x": leaf}))["x"], leaf)


def test_a_decoded_message_can_be_written_to(post: Any) -> None:
    mail = post({"x": torch.zeros(2, 3)})
    payloads = encoded(mail)
    decoded = Native().decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
    decoded += 1
    assert payloads == [bytes(12)] * 2
    assert torch.equal(mail["x"], torch.zeros(2, 3))


@pytest.mark.parametrize("change", [-1, 1, 4])
def test_a_payload_of_another_length_is_refused(post: Any, change: int) -> None:
    mail = post({"x": torch.zeros(2, 3)})
    with pytest.raises(CodecError, match=f"payload of {12 + change} bytes arrived where 12 were expected"):
        Native().decode(mail.ctx, {}, [bytes(12), bytes(12 + change)], blank(mail))


def test_it_is_known_by_its_name() -> None:
    assert CODECS["native"] is Native
