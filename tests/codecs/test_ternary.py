"""Sparse ternary compression: the largest entries as one size with signs, and nothing else is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CODECS, CodecError, SparseTernary
from descant.mail import Mail

numbers = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=12)


def updates(post: Any, leaf: Tensor) -> Mail:
    """Mail of one leaf that is a difference."""
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


def ternary(row: list[float], share: float) -> np.ndarray:
    """What the paper's algorithm makes of a row, one entry after the other."""
    k = max(1, round(share * len(row)))
    order = sorted(range(len(row)), key=lambda i: (-abs(row[i]), i))[:k]
    mu = sum(abs(row[i]) for i in order) / k
    made = np.zeros(len(row))
    for i in order:
        made[i] = mu if row[i] >= 0 else -mu
    return made


@given(numbers, st.sampled_from([0.01, 0.3, 0.5, 1.0]))
def test_the_largest_entries_arrive_as_one_size_with_their_signs(post: Any, row: list[float], share: float) -> None:
    back = returned(SparseTernary(share=share), updates(post, torch.tensor([row], dtype=torch.float64)))["x"]
    np.testing.assert_allclose(back[0].numpy(), ternary(row, share), rtol=1e-12, atol=0)


@given(st.lists(numbers.map(lambda row: (row * 7)[:7]), min_size=1, max_size=8), st.integers(1, 7))
def test_what_is_sent_and_what_is_left_sum_to_the_total(post: Any, rounds: list[list[float]], k: int) -> None:
    codec, total = SparseTernary(share=k / 7), torch.zeros(2, 7).double()
    memory, arrived = codec.memory({"x": total}), torch.zeros(2, 7).double()
    for row in rounds:
        leaf = torch.tensor([row, row[::-1]], dtype=torch.float64)
        mail = updates(post, leaf)
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        arrived += codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
        total += leaf
    largest = max(abs(entry) for row in rounds for entry in row)
    np.testing.assert_allclose(arrived + memory["x.residual"], total, rtol=0, atol=1e-9 * (1 + largest))


@given(numbers, st.sampled_from([0.01, 0.4, 1.0]))
def test_what_is_left_is_shorter_by_what_was_sent(post: Any, row: list[float], share: float) -> None:
    """||p - C(p)||^2 = ||p||^2 - k mu^2: the error of a reading shrinks."""
    leaf = torch.tensor([row], dtype=torch.float64)
    back = returned(SparseTernary(share=share), updates(post, leaf))["x"]
    whole, sent = float(leaf.square().sum()), float(back.square().sum())
    assert float((leaf - back).square().sum()) == pytest.approx(whole - sent, abs=1e-9 * whole)


def test_an_entry_takes_its_index_and_a_bit(post: Any) -> None:
    """One of a hundred entries, at random: nine bits and a little more."""
    leaf = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(1))
    (payload,) = SparseTernary().encode(updates(post, leaf).ctx, {"x.residual": 0 * leaf}, updates(post, leaf))[1]
    assert 4 + 1000 + 125 < len(payload) < 4 + 1000 * 9.6 / 8


@pytest.mark.parametrize(
    "payload", [b"", b"\0" * 7, b"\0" * 8, b"\xff" * 9, np.float64(-1.0).tobytes() + b"\1", b"\0" * 8 + b"\7\7"]
)
def test_what_is_no_message_is_refused(post: Any, payload: bytes) -> None:
    mail = updates(post, torch.zeros(1, 5, dtype=torch.float64))
    with pytest.raises(CodecError):
        SparseTernary(share=0.2).decode(mail.ctx, {}, [payload], blank(mail))


@pytest.mark.parametrize("size", [np.nan, np.inf, -1.0])
def test_a_message_of_no_size_or_with_more_behind_it_is_refused(post: Any, size: float) -> None:
    mail = updates(post, torch.tensor([[0.0, 2.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    codec = SparseTernary(share=0.2)
    (payload,) = codec.encode(mail.ctx, codec.memory({"x": mail["x"]}), mail)[1]
    for damaged in (np.float64(size).tobytes() + payload[8:], payload + b"\0"):
        with pytest.raises(CodecError):
            codec.decode(mail.ctx, {}, [damaged], blank(mail))


def test_zeros_among_the_largest_arrive_as_the_size_and_are_owed_back(post: Any) -> None:
    mail = updates(post, torch.tensor([[3.0, 0.0, 0.0, -1.0, 0.0, 0.0]], dtype=torch.float64))
    codec = SparseTernary(share=0.5)
    memory, payloads = codec.encode(mail.ctx, codec.memory({"x": 0 * mail["x"]}), mail)
    back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
    torch.testing.assert_close(back, torch.tensor([[4, 4, 0, -4, 0, 0]], dtype=torch.float64) / 3)
    torch.testing.assert_close(memory["x.residual"], mail["x"] - back)


def test_an_update_that_is_not_finite_is_refused(post: Any) -> None:
    mail = updates(post, torch.tensor([[1.0, torch.nan]]))
    with pytest.raises(CodecError, match="'x' is not finite"):
        SparseTernary(feedback=False).encode(mail.ctx, {}, mail)


def test_sizes_whose_sum_overflows_have_a_mean(post: Any) -> None:
    mail = updates(post, torch.tensor([[1.5e308, -1.5e308]], dtype=torch.float64))
    assert torch.equal(returned(SparseTernary(share=1.0), mail)["x"], mail["x"])


def test_a_leaf_of_no_numbers_takes_no_bytes(post: Any) -> None:
    mail = updates(post, torch.zeros(2, 0))
    codec = SparseTernary()
    assert codec.encode(mail.ctx, codec.memory({"x": mail["x"]}), mail)[1] == [b"", b""]
    assert returned(codec, mail)["x"].shape == (2, 0)


def test_it_is_known_by_its_name() -> None:
    assert CODECS["stc"] is SparseTernary
