"""Top-k: the largest entries travel, and nothing that does not is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.codecs import DGC, LBGM
from toys.post import blank, returned

from descant.codecs import CODECS, CodecError, TopK, UpdateCodec
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


@pytest.mark.parametrize("codec", [TopK(), DGC(), LBGM()], ids=lambda c: c.name)
def test_one_number_is_an_update_too(post: Any, codec: UpdateCodec) -> None:
    leaf = torch.tensor([3.0, -4.0], dtype=torch.float64)
    assert torch.equal(returned(codec, updates(post, leaf))["x"], leaf)


def test_two_leaves_and_what_is_no_update(post: Any) -> None:
    leaves = {"n": torch.tensor([5, 6], dtype=torch.int32), "a": torch.randn(2, 6), "b": torch.randn(2, 2, 3)}
    mail = post(leaves, {name: torch.zeros_like(leaves[name][:1]) for name in ("a", "b")})
    payloads = TopK(share=1.0).encode(mail.ctx, TopK(share=1.0).memory(mail.updates()), mail)[1]
    assert {len(payload) for payload in payloads} == {4 + 4 + 6 * 5 + 6 * 5}
    back = returned(TopK(share=1.0), mail)
    assert list(back) == list(leaves) and all(torch.equal(back[name], leaf) for name, leaf in leaves.items())


@pytest.mark.parametrize(("n", "width"), [(1, 1), (256, 1), (257, 2), (65536, 2), (65537, 3)])
def test_an_index_takes_as_few_bytes_as_it_needs(post: Any, n: int, width: int) -> None:
    leaf = torch.zeros(1, n)
    leaf[0, -1] = 2.0
    mail = updates(post, leaf)
    payloads = TopK(share=1e-9).encode(mail.ctx, {"x.residual": torch.zeros_like(leaf)}, mail)[1]
    assert [len(payload) for payload in payloads] == [width + 4]
    assert torch.equal(returned(TopK(share=1e-9), mail)["x"], leaf)


@pytest.mark.parametrize("codec", [TopK(share=0.5), DGC(share=0.5), LBGM()], ids=lambda c: c.name)
@pytest.mark.parametrize(
    "row",
    [
        [0.0] * 4,
        [1e308] * 4,
        [5e-324, -5e-324, 0.0, 1e-310],
        [float("nan")] * 4,
        [float("inf"), -1.0, 0.0, 2.0],
        [],
    ],
    ids=["zero", "huge", "denormal", "nan", "infinite", "empty"],
)
def test_any_vector_can_be_sent(post: Any, codec: UpdateCodec, row: list[float]) -> None:
    leaf = torch.tensor([row, row], dtype=torch.float64)
    back = returned(codec, updates(post, leaf))["x"]
    assert back.shape == leaf.shape
    sent = back != 0
    assert torch.equal(back[sent].nan_to_num(nan=7.0), leaf[sent].nan_to_num(nan=7.0))


@pytest.mark.parametrize("codec", [TopK(share=0.4), DGC(share=0.4), LBGM()], ids=lambda c: c.name)
@given(payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_whatever_arrives_is_read_or_refused(post: Any, codec: UpdateCodec, payloads: list[bytes]) -> None:
    a, b, n = torch.zeros(len(payloads), 5), torch.zeros(len(payloads), 3), torch.zeros(len(payloads))
    mail = post({"a": a, "b": b, "n": n}, {"a": a[:1], "b": b[:1]})
    try:
        read = codec.decode(mail.ctx, codec.copies(mail.updates()), payloads, blank(mail))[1]
    except CodecError:
        return
    assert read.form == mail.form


@pytest.mark.parametrize("codec", [TopK(share=0.4), DGC(share=0.4), LBGM()], ids=lambda c: c.name)
@given(cut=st.integers(0, 40), at=st.integers(0, 100), flip=st.integers(1, 255))
def test_a_cut_payload_is_refused_and_a_spoiled_one_read_or_refused(
    post: Any, codec: UpdateCodec, cut: int, at: int, flip: int
) -> None:
    a, b = torch.arange(5.0)[None], torch.arange(3.0)[None]
    mail = post({"a": a, "b": b, "n": torch.ones(1)}, {"a": a[:1] * 0, "b": b[:1] * 0})
    (payload,) = codec.encode(mail.ctx, codec.memory(mail.updates()), mail)[1]
    copies = codec.copies(mail.updates())
    with pytest.raises(CodecError):
        codec.decode(mail.ctx, copies, [payload[: min(cut, len(payload) - 1)]], blank(mail))
    with pytest.raises(CodecError):
        codec.decode(mail.ctx, copies, [payload + bytes(cut + 1)], blank(mail))
    spoiled = bytearray(payload)
    spoiled[at % len(payload)] ^= flip
    try:
        read = codec.decode(mail.ctx, copies, [bytes(spoiled)], blank(mail))[1]
    except CodecError:
        return
    assert read.form == mail.form


@pytest.mark.parametrize("index", [[1, 1], [2, 1], [0, 5]])
def test_indices_must_rise_and_lie_within_the_leaf(post: Any, index: list[int]) -> None:
    mail = updates(post, torch.zeros(1, 5))
    with pytest.raises(CodecError, match="must rise and lie below 5"):
        TopK(share=0.4).decode(mail.ctx, {}, [bytes(index) + bytes(8)], blank(mail))


def test_bytes_that_belong_to_no_leaf_are_refused(post: Any) -> None:
    mail = post({"n": torch.ones(1)})
    with pytest.raises(CodecError):
        TopK().decode(mail.ctx, {}, [bytes(5)], blank(mail))


def test_it_is_known_by_its_name() -> None:
    assert CODECS["top-k"] is TopK
