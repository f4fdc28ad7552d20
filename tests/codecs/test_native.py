"""The native codec: numbers as they are, nothing more and nothing less."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from descant.codecs import CODECS, Native

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
def leaves(draw: st.DrawFn) -> Tensor:
    shape, dtype = draw(shapes), draw(st.sampled_from(DTYPES))
    values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) * 100
    return (values > 0) if dtype is torch.bool else values.abs().to(dtype)


messages = st.dictionaries(st.text(min_size=1, max_size=5), leaves(), max_size=4)


@given(messages)
def test_what_is_decoded_is_what_was_encoded(message: dict[str, Tensor]) -> None:
    decoded = Native().decode(Native().encode(message), like=message)
    assert list(decoded) == list(message)
    for name, leaf in message.items():
        assert decoded[name].dtype == leaf.dtype
        assert decoded[name].shape == leaf.shape
        assert torch.equal(decoded[name], leaf)


@given(messages)
def test_the_size_is_the_length_of_the_payload(message: dict[str, Tensor]) -> None:
    assert Native().size(message) == len(Native().encode(message))


def test_a_message_is_its_numbers_and_no_header() -> None:
    message = {"delta": torch.tensor([1.0, -2.5]), "n": torch.tensor(7, dtype=torch.int32)}
    expected = message["delta"].numpy().tobytes() + message["n"].numpy().tobytes()
    assert Native().encode(message) == expected
    assert Native().size(message) == 4 + 4 + 4
    assert Native().size({name: leaf.double() for name, leaf in message.items()}) == 8 + 8 + 8


def test_every_bit_survives_the_way_even_of_what_is_not_finite() -> None:
    leaf = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 5e-324], dtype=torch.float64)
    (back,) = Native().decode(Native().encode({"x": leaf}), like={"x": leaf}).values()
    assert torch.equal(back.view(torch.int64), leaf.view(torch.int64))


def test_a_leaf_that_lies_scattered_in_memory_is_sent_in_its_own_order() -> None:
    leaf = torch.arange(12.0).view(3, 4).T[::2]
    (back,) = Native().decode(Native().encode({"x": leaf}), like={"x": leaf}).values()
    assert torch.equal(back, leaf)


def test_a_decoded_message_can_be_written_to() -> None:
    like = {"x": torch.zeros(3)}
    payload = Native().encode(like)
    decoded = Native().decode(payload, like)["x"]
    decoded += 1
    assert payload == bytes(12)
    assert torch.equal(like["x"], torch.zeros(3))


@pytest.mark.parametrize("change", [-1, 1, 4])
def test_a_payload_of_another_length_is_refused(change: int) -> None:
    like = {"x": torch.zeros(3)}
    with pytest.raises(ValueError, match=f"payload of {12 + change} bytes arrived where 12 were expected"):
        Native().decode(bytes(12 + change), like)


def test_it_is_known_by_its_name() -> None:
    assert CODECS["native"] is Native
