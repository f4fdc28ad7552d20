"""Top-k: the largest entries travel, and nothing that does not is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CODECS, CodecError, TopK
from descant.mail import Mail

whole_numbers = st.lists(st.integers(-1000, 1000), min_size=1, max_size=9)


def zero(like: Tensor) -> dict[str, Tensor]:
    return {"x": torch.zeros_like(like[:1])}


def updates(post: Any, leaf: Tensor) -> Mail:
    """Mail of one leaf that is a difference."""
    mail: Mail = post({"x": leaf}, zero(leaf))
    return mail


@given(whole_numbers, st.sampled_from([0.01, 0.3, 0.5, 1.0]))
def test_the_largest_entries_arrive_as_they_are(post: Any, row: list[int], share: float) -> None:
    leaf = torch.tensor([row], dtype=torch.float64)
    back = returned(TopK(share=share), updates(post, leaf))["x"]
    k = max(1, round(share * len(row)))
    sent = back != 0
    assert int(sent.sum()) == min(k, int((leaf != 0).sum())) and torch.equal(back[sent], leaf[sent])
    assert sorted(back.abs().flatten().tolist())[-k:] == sorted(leaf.abs().flatten().tolist())[-k:]


@given(st.lists(whole_numbers.map(lambda row: (row * 9)[:7]), min_size=1, max_size=12), st.integers(1, 3))
def test_what_is_sent_and_what_is_left_sum_to_the_total(post: Any, rounds: list[list[int]], k: int) -> None:
    codec, total = TopK(share=k / 7), torch.zeros(2, 7).double()
    memory, arrived = codec.memory({"x": total}), torch.zeros(2, 7).double()
    for row in rounds:
        leaf = torch.tensor([row, row[::-1]], dtype=torch.float64)
        mail = updates(post, leaf)
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        arrived += codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
        total += leaf
        assert torch.equal(arrived + memory["x.residual"], total)


def test_without_feedback_the_rest_is_lost(post: Any) -> None:
    codec = TopK(share=0.5, feedback=False)
    mail = updates(post, torch.tensor([[3.0, -5.0]]))
    assert codec.memory({"x": mail["x"]}) == {}
    memory, payloads = codec.encode(mail.ctx, {}, mail)
    assert memory == {} and codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"].tolist() == [[0.0, -5.0]]


def test_positions_travel_as_what_they_moved_by(post: Any) -> None:
    since = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    mail = post({"u": torch.tensor([[11.0, 25.0], [28.0, 41.0]])}, {"u": since})
    assert returned(TopK(share=0.5), mail)["u"].tolist() == [[10.0, 25.0], [28.0, 40.0]]


def test_two_leaves_and_what_is_no_update(post: Any) -> None:
    leaves = {"n": torch.tensor([5, 6], dtype=torch.int32), "a": torch.randn(2, 6), "b": torch.randn(2, 2, 3)}
    mail = post(leaves, {name: torch.zeros_like(leaves[name][:1]) for name in ("a", "b")})
    payloads = TopK(share=1.0).encode(mail.ctx, TopK(share=1.0).memory(mail.updates()), mail)[1]
    assert {len(payload) for payload in payloads} == {4 + 4 + (6 * 4 + 1) + (6 * 4 + 1)}, "six indices in a byte"
    back = returned(TopK(share=1.0), mail)
    assert list(back) == list(leaves) and all(torch.equal(back[name], leaf) for name, leaf in leaves.items())


def test_an_index_takes_few_bits(post: Any) -> None:
    """One of a hundred entries, at random: eight bits and a little, where whole bytes would take 24."""
    leaf = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(1))
    mail = updates(post, leaf)
    (payload,) = TopK(share=0.01).encode(mail.ctx, {"x.residual": torch.zeros_like(leaf)}, mail)[1]
    assert 1000 * 4 + 1000 < len(payload) < 1000 * 4 + 1000 * 8.6 / 8


def test_bytes_that_belong_to_no_leaf_are_refused(post: Any) -> None:
    mail = post({"n": torch.ones(1)})
    with pytest.raises(CodecError):
        TopK().decode(mail.ctx, {}, [bytes(5)], blank(mail))


def test_it_is_known_by_its_name() -> None:
    assert CODECS["top-k"] is TopK
