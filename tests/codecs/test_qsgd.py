"""QSGD: a plain loop, to the bit; the right mean, and the variance that the paper promises."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log2, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import QSGD, CodecError
from descant.draws import bits
from descant.errors import SettingError
from descant.mail import Mail

SEED = 0  # of the fixture `post`


def updates(post: Any, leaf: Tensor, round: int = 1) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return replace(mail, ctx=mail.ctx.at(round))


def drawn(round: int, k: int, i: int) -> float:
    """The number in (0, 1) that rounds entry i of client k: a half of 64 random bits."""
    word = int(bits(SEED, "each", round, "qsgd x 0", k, i // 2)) % 2**64
    half = word >> 32 * (i % 2) & 0xFFFFFFFF
    return ((half + 2**31) % 2**32 + 0.5) / 2**32


def as_bytes(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))


def plain(codec: QSGD, v: np.ndarray, round: int, k: int) -> tuple[bytes, list[float]]:
    """The paper's loop: a client's payload, and what the server reads."""
    norms, unary, rest, signs, back = b"", "", "", "", []
    for start in range(0, len(v), codec.bucket):
        part = v[start : start + codec.bucket]
        norm = np.abs(part).max() if codec.norm == "max" else np.linalg.norm(part)
        norms += np.float64(norm).tobytes()
        for i, number in enumerate(part, start):
            exact = codec.levels * abs(number) / norm if norm else 0.0
            level = floor(exact) + (drawn(round, k, i) < exact - floor(exact))
            code = bin(level + 1)[2:]
            unary += "0" * (len(code) - 1) + "1"
            rest += code[1:][::-1]
            signs += "" if level == 0 else "1" if number < 0 else "0"
            back.append(float(np.sign(number)) * norm * level / codec.levels)
    return norms + as_bytes(unary + rest + signs), back


@pytest.mark.parametrize(
    "codec", [QSGD(), QSGD(levels=1, bucket=7), QSGD(levels=4, bucket=16, norm="l2"), QSGD(levels=1000, bucket=50)]
)
def test_it_is_a_plain_loop_over_rounds_clients_and_numbers(post: Any, codec: QSGD) -> None:
    generator = torch.Generator().manual_seed(1)
    for round in (1, 2, 3):
        leaf = torch.randn(3, 41, generator=generator, dtype=torch.float64) ** 3
        leaf[1, 5:30] = 0.0
        mail = updates(post, leaf, round)
        memory, payloads = codec.encode(mail.ctx, {}, mail)
        back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
        assert memory == {}
        for k in range(3):
            payload, read = plain(codec, leaf[k].numpy(), round, k)
            norms = 8 * ceil(41 / codec.bucket)
            assert payloads[k][norms:] == payload[norms:]
            np.testing.assert_allclose(
                np.frombuffer(payloads[k][:norms]), np.frombuffer(payload[:norms]), rtol=1e-15
            )
            np.testing.assert_allclose(back[k].numpy(), read, rtol=1e-14, atol=0)


def seen(post: Any, codec: QSGD, v: Tensor, times: int = 20_000) -> Tensor:
    """What arrives of v from as many clients, each with draws of its own."""
    return returned(codec, updates(post, v.expand(times, -1)))["x"]


@pytest.mark.few(1)
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("levels", [1, 5])
def test_the_mean_of_what_arrives_is_what_was_sent(post: Any, norm: str, levels: int) -> None:
    """Every mean is within six standard errors: of a right codec's 40 numbers one is not with a chance of 1e-7."""
    v = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    back = seen(post, QSGD(levels=levels, bucket=20, norm=norm), v)
    norms = torch.linalg.vector_norm(v.view(2, 20), ord=2 if norm == "l2" else torch.inf, dim=1)
    step = norms.repeat_interleave(20) / levels
    chance = (v.abs() / step) % 1
    error = step * (chance * (1 - chance) / len(back)).sqrt()  # the standard error of the mean, exactly
    assert bool(((back.mean(0) - v).abs() <= 6 * error + 1e-9).all())
    assert bool((back.std(0) <= 1.1 * error * sqrt(len(back)) + 1e-9).all())
    assert bool((back.std(0) > 0).any())


@pytest.mark.parametrize("levels", [1, 3, 20])
def test_the_variance_is_within_the_papers_bound(post: Any, levels: int) -> None:
    """Lemma 3.1: E ||Q(v) - v||^2 <= min(n / s^2, sqrt(n) / s) ||v||^2."""
    n = 64
    v = torch.randn(n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    back = seen(post, QSGD(levels=levels, bucket=n, norm="l2"), v, times=2_000)
    variance = float((back - v).square().sum(1).mean())
    bound = min(n / levels**2, sqrt(n) / levels) * float(v.square().sum())
    assert 0.05 * bound < variance <= bound


def test_a_level_is_never_further_than_one_step(post: Any) -> None:
    v = torch.randn(3, 1000, generator=torch.Generator().manual_seed(4))
    back = returned(QSGD(levels=10, bucket=1000), updates(post, v))["x"]
    assert bool(((back - v).abs() <= v.abs().amax(1, keepdim=True) / 10 * (1 + 1e-5)).all())


@pytest.mark.parametrize("levels", [1, 126, 65_535, 2**24 - 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_any_number_of_levels_is_read(post: Any, levels: int, dtype: torch.dtype) -> None:
    v = torch.randn(2, 300, generator=torch.Generator().manual_seed(6)).to(dtype)
    back = returned(QSGD(levels=levels), updates(post, v))["x"]
    assert bool(((back - v).abs().amax(1) <= v.abs().amax(1) * (1 / levels + 2 * torch.finfo(dtype).eps)).all())


@pytest.mark.parametrize(("field", "value"), [("levels", 0), ("levels", 2**24), ("bucket", 0), ("norm", "l1")])
def test_fields_are_checked(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"QSGD.{field} = "):
        QSGD(**{field: value})


def test_a_bucket_may_be_larger_than_any_vector(post: Any) -> None:
    v = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(4))
    whole, large = (returned(QSGD(bucket=bucket), updates(post, v))["x"] for bucket in (100_000, 2**40))
    assert torch.equal(whole, large)


def test_buckets_may_be_cut_anywhere(post: Any) -> None:
    """Buckets that do not divide what is worked on at a time: each has its own norm, and whole levels arrive."""
    v = torch.randint(-3, 4, (1, 140_001), generator=torch.Generator().manual_seed(4)).double()
    v[:, ::7], scale = 3.0, torch.arange(1.0, 20_002.0).double().repeat_interleave(7)[:140_001]
    assert torch.allclose(returned(QSGD(levels=3, bucket=7), updates(post, v * scale))["x"], v * scale, rtol=1e-14)


def test_whole_levels_arrive_as_they_are(post: Any) -> None:
    v = torch.tensor([[-4.0, 1.0, 0.0, 3.0, -2.0, 4.0]], dtype=torch.float64)
    assert torch.equal(returned(QSGD(levels=4), updates(post, v))["x"], v)


def test_a_message_is_short(post: Any) -> None:
    """Sign and seven levels in less than four bits, where the numbers are normal; norms are four bytes a bucket."""
    v = torch.randn(1, 51_200, generator=torch.Generator().manual_seed(5))
    mail = updates(post, v)
    (payload,) = QSGD().encode(mail.ctx, {}, mail)[1]
    levels = (returned(QSGD(), mail)["x"].view(100, 512) / v.view(100, 512).abs().amax(1, keepdim=True) * 7).round()
    size = levels.abs().flatten()
    bits = sum(2 * floor(log2(level + 1)) + 1 + (level > 0) for level in size.tolist())
    assert len(payload) == 100 * 4 + ceil(bits / 8) < 100 * 4 + 51_200 / 2


@pytest.mark.parametrize("norm", [-1.0, float("nan"), float("inf")])
def test_a_norm_that_is_none_is_refused(post: Any, norm: float) -> None:
    mail = updates(post, torch.ones(1, 3, dtype=torch.float64))
    (payload,) = QSGD().encode(mail.ctx, {}, mail)[1]
    with pytest.raises(CodecError, match="norms of a message must be finite"):
        QSGD().decode(mail.ctx, {}, [np.float64(norm).tobytes() + payload[8:]], blank(mail))


def test_a_level_above_the_highest_is_refused(post: Any) -> None:
    mail = updates(post, torch.ones(1, 3, dtype=torch.float64))
    (payload,) = QSGD(levels=7).encode(mail.ctx, {}, mail)[1]
    with pytest.raises(CodecError, match="at most 7"):
        QSGD(levels=6).decode(mail.ctx, {}, [payload], blank(mail))
