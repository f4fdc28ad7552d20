"""What holds for every codec of updates: what it sends, what it makes of spoiled bytes, and what it loses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import (
    CODECS,
    DGC,
    LBGM,
    QSGD,
    CodecError,
    CountSketch,
    RandomK,
    Sign,
    SparseTernary,
    TopK,
    Uniform,
    UpdateCodec,
)
from descant.mail import Mail

LOSSY: list[UpdateCodec] = [
    Uniform(bits=5),
    QSGD(levels=3, bucket=4),
    QSGD(levels=300, bucket=5, norm="l2"),
    TopK(share=0.4),
    RandomK(share=0.4),
    RandomK(share=0.4, feedback=False),
    Sign(),
    SparseTernary(share=0.4),
    SparseTernary(share=0.4, feedback=False),
    DGC(share=0.4, warmup=0),
    CountSketch(share=0.4, columns=0.5, rows=3),
    LBGM(),
]
EACH = pytest.mark.parametrize("codec", LOSSY, ids=lambda c: f"{c.name}-{getattr(c, 'feedback', '')}")
TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def updates(post: Any, leaf: Tensor) -> Mail:
    """Mail of one leaf that is a difference."""
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


def spoiled(codec: UpdateCodec, payloads: list[bytes], mail: Mail) -> Mail | None:
    """What is read of payloads; nothing where they are refused."""
    try:
        return codec.decode(mail.ctx, codec.copies(mail.updates()), payloads, blank(mail))[1]
    except CodecError:
        return None


def test_every_codec_of_updates_is_among_them() -> None:
    assert {type(codec) for codec in LOSSY} == {codec for codec in CODECS.values() if codec.updates}


@EACH
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 9), (1, 1), (3,), (2, 3, 4), (2, 0), (0, 5), (5, 17)], ids=str)
def test_what_arrives_has_the_form_of_what_was_sent(
    post: Any, codec: UpdateCodec, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    leaf = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    mail = updates(post, leaf)
    back = returned(codec, mail)
    assert back.form == mail.form and bool(back["x"].isfinite().all())
    if leaf.numel():
        assert bool(back["x"].any())


@EACH
@pytest.mark.parametrize(
    "row", [[0.0] * 6, [], [1e-310, -5e-324, 0.0, 5e-324, 2e-310], [3.0]], ids=["zero", "empty", "denormal", "one"]
)
def test_small_vectors_arrive(post: Any, codec: UpdateCodec, row: list[float]) -> None:
    leaf = torch.tensor([row, row], dtype=torch.float64)
    back = returned(codec, updates(post, leaf))["x"]
    assert back.shape == leaf.shape and bool(back.isfinite().all())
    assert float(back.abs().sum()) <= 3 * float(leaf.abs().sum())
    if not leaf.any():
        assert not back.any()


@EACH
def test_huge_vectors_arrive(post: Any, codec: UpdateCodec) -> None:
    """Squares of their numbers, and sums of them, are infinite."""
    leaf = torch.tensor([[1e308, -1e308, 1.5e308, 0.0, 3.0], [-1e308, 1e307, 1e306, 1.0, 2.0]], dtype=torch.float64)
    if getattr(codec, "norm", "") == "l2":  # infinite, too
        with pytest.raises(CodecError, match="its norm is not"):
            returned(codec, updates(post, leaf))
        leaf = leaf / 4
    if not getattr(codec, "feedback", True):  # it multiplies by n / k
        leaf = leaf / 4
    back = returned(codec, updates(post, leaf))["x"]
    assert bool(back.isfinite().all()) and bool((back.abs() > 1e305).any(1).all())


@EACH
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_or_arrives_so(post: Any, codec: UpdateCodec, value: float) -> None:
    """In a round both are refused and counted. It may not arrive as something that is finite."""
    leaf = torch.randn(1, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaf[0, 4] = value
    try:
        back = returned(codec, updates(post, leaf))
    except CodecError as refused:
        assert "the update of 'x' is not finite" in str(refused)
    else:
        assert not bool(back.finite())


@EACH
@given(payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_whatever_arrives_is_read_or_refused(post: Any, codec: UpdateCodec, payloads: list[bytes]) -> None:
    a, b, n = torch.zeros(len(payloads), 5), torch.zeros(len(payloads), 3), torch.zeros(len(payloads))
    mail = post({"a": a, "b": b, "n": n}, {"a": a[:1], "b": b[:1]})
    read = spoiled(codec, payloads, mail)
    assert read is None or read.form == mail.form


@pytest.mark.few(1)
@EACH
@given(cut=st.integers(0, 60), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_cut_payload_is_refused_and_a_spoiled_one_read_or_refused(
    post: Any, codec: UpdateCodec, cut: int, at: int, flip: int
) -> None:
    a, b = torch.arange(1.0, 6.0)[None], torch.arange(1.0, 4.0)[None]
    mail = post({"a": a, "b": b, "n": torch.ones(1)}, {"a": a[:1] * 0, "b": b[:1] * 0})
    (payload,) = codec.encode(mail.ctx, codec.memory(mail.updates()), mail)[1]
    assert spoiled(codec, [payload[: min(cut, len(payload) - 1)]], mail) is None
    assert spoiled(codec, [payload + bytes(cut + 1)], mail) is None
    changed = bytearray(payload)
    changed[at % len(payload)] ^= flip
    read = spoiled(codec, [bytes(changed)], mail)
    assert read is None or read.form == mail.form


@EACH
def test_each_client_is_encoded_as_it_would_be_alone(post: Any, codec: UpdateCodec) -> None:
    leaf = torch.randn(4, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mail = updates(post, leaf)
    memory = codec.memory(mail.updates())
    together = codec.encode(mail.ctx, memory, mail)[1]
    for k in range(4):
        one = mail.only(torch.tensor([k]))
        alone = codec.encode(mail.ctx, {name: rows[[k]] for name, rows in memory.items()}, one)[1]
        assert alone == together[k : k + 1]


@EACH
def test_an_update_is_not_changed_by_sending_it(post: Any, codec: UpdateCodec) -> None:
    leaf = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    mail, kept = updates(post, leaf), leaf.clone()
    memory = codec.memory(mail.updates())
    before = {name: rows.clone() for name, rows in memory.items()}
    codec.encode(mail.ctx, memory, mail)
    assert torch.equal(leaf, kept) and all(torch.equal(memory[name], rows) for name, rows in before.items())


def rounds(post: Any, codec: UpdateCodec, T: int, n: int = 30) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What clients sent, what arrived, and what they remember, round by round."""
    generator = torch.Generator().manual_seed(5)
    memory, copies, found = {}, {}, []
    for t in range(1, T + 1):
        leaf = torch.randn(3, n, generator=generator, dtype=torch.float64)
        mail = updates(post, leaf)
        mail = replace(mail, ctx=mail.ctx.at(t))
        memory, copies = memory or codec.memory(mail.updates()), copies or codec.copies(mail.updates())
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        copies, back = codec.decode(mail.ctx, copies, payloads, blank(mail))
        found.append((leaf, back["x"], memory.get("x.residual", torch.zeros_like(leaf))))
    return found


FEEDING = [TopK(share=0.1), RandomK(share=0.1), Sign(), DGC(share=0.1, beta=0.0), CountSketch(share=0.1, beta=0.0)]


@pytest.mark.parametrize("codec", FEEDING, ids=lambda c: c.name)
def test_what_arrives_and_what_is_left_sum_to_all_updates(post: Any, codec: UpdateCodec) -> None:
    """And what is sent of p = update + residual makes it no longer: codecs with feedback contract."""
    total, arrived, owed = 0.0, 0.0, torch.zeros(3, 30).double()
    for leaf, back, residual in rounds(post, codec, 20):
        total, arrived, wanted = total + leaf, arrived + back, owed + leaf
        assert torch.allclose(arrived + residual, total, rtol=0, atol=1e-12)
        assert torch.allclose(wanted - back, residual, rtol=0, atol=1e-12)
        assert bool((residual.norm(dim=1) < wanted.norm(dim=1)).all())
        owed = residual


def test_top_k_contracts_by_its_share(post: Any) -> None:
    owed = torch.zeros(3, 30).double()
    for leaf, _, residual in rounds(post, TopK(share=0.1), 20):
        bound = (1 - 3 / 30) * (owed + leaf).square().sum(1)
        assert bool((residual.square().sum(1) <= bound).all())
        owed = residual


def test_draws_differ_between_rounds_clients_and_leaves(post: Any) -> None:
    leaf = torch.full((2, 400), 0.3).double()
    leaf[:, 0] = 1.0
    leaves = {"a": leaf, "b": leaf}
    mail = post(leaves, {name: torch.zeros_like(leaf[:1]) for name in leaves})
    for codec in (QSGD(levels=1), RandomK(share=0.5)):
        seen = []
        for t in (1, 2):
            at = replace(mail, ctx=mail.ctx.at(t))
            back = returned(codec, at)
            again = returned(codec, at)
            assert all(torch.equal(back[name], again[name]) for name in leaves)
            seen += [row for name in leaves for row in back[name]]
        assert len(torch.unique(torch.stack(seen), dim=0)) == 8
