"""Positions that are compressed from what the server read last: what was left out is in the next update anyway."""

from __future__ import annotations

import re
from dataclasses import replace
from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant import Task
from descant.codecs import (
    DGC,
    LBGM,
    QSGD,
    CountSketch,
    RandomK,
    Sign,
    SparseTernary,
    TopK,
    Uniform,
    UpdateCodec,
)
from descant.context import Context
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import FLAME, L2SGD, FedADMM, FedPlus, LpProjADMM, Method

CODECS: list[UpdateCodec] = [
    *(TopK(share=0.2), TopK(share=0.2, feedback=False), RandomK(share=0.2), RandomK(share=0.2, feedback=False)),
    *(Sign(), DGC(share=0.2, warmup=0), CountSketch(share=0.2, columns=0.5), QSGD(levels=7), LBGM(delta=0.2)),
    *(Uniform(bits=5), SparseTernary(share=0.2), SparseTernary(share=0.2, feedback=False)),
]


def readings(codec: UpdateCodec, stands: Tensor, rounds: int, ord: float = 2) -> list[float]:
    """How far what the server reads is from where clients stand [S, n], by the size of that, after each round."""
    S = len(stands)
    task, who = Task(nn.Linear(9, 1).double()), torch.arange(S)
    memory, copies = codec.memory({"x": stands}), codec.copies({"x": stands})
    read, gaps = torch.zeros_like(stands), []
    for t in range(1, rounds + 1):
        ctx = Context(t, 0, S, task.layout, task.start(), 0)
        known: Any = {"references": {"x": read}, "since_last": ("x",)}
        mail = Mail({"x": stands}, who, ctx, torch.full_like(who, t), **known)
        memory, payloads = codec.encode(ctx.of_parties(who), memory, mail)
        blank = replace(mail, leaves=mail.form.blank(S))
        copies, arrived = codec.decode(ctx.of_server(), copies, payloads, blank)
        read = arrived["x"]
        gaps.append(float((read - stands).norm(ord) / stands.norm(ord)))
    return gaps


@pytest.mark.few(1)
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_client_that_stands_still_is_read_better_and_better(codec: UpdateCodec) -> None:
    generator = torch.Generator().manual_seed(1)
    gaps = readings(codec, torch.randn(3, 10, generator=generator, dtype=torch.float64), 60)
    assert max(gaps) < 1.0 + 1e-9 and gaps[-1] < 0.01


def longest(n: int, levels: int) -> float:
    """The mean of ||Q(v) - v||^2 / ||v||^2 by the paper's formula, for the v whose n entries are alike."""
    chance = levels / sqrt(n) % 1
    return n * chance * (1 - chance) / levels**2


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 15, 16, 17, 100, 512, 5000])
def test_qsgd_by_lengths_settles_where_half_the_root_of_a_bucket_is_below_its_levels(n: int) -> None:
    for levels in range(1, 80):
        codec = QSGD(levels=levels, bucket=n, norm="l2")
        settles = codec.unsettled(10**6) is None
        assert settles == (levels > sqrt(n) / 2)
        if settles:  # every entry's variance is at most a quarter of a level's square
            assert longest(n, levels) <= n / (4 * levels**2) < 1
        else:
            assert longest(n, levels) >= 1 - 1e-9
            said = re.search(r"max, (\d+) levels .* of (\d+) numbers or fewer$", codec.unsettled(n) or "")
            assert said is not None
            needed, size = int(said[1]), int(said[2])
            for least, most in ((needed, n), (levels, size)):
                assert QSGD(levels=least, bucket=most, norm="l2").unsettled(n) is None
            for fewer, more in ((needed - 1, n), (levels, size + 1)):
                assert QSGD(levels=fewer, bucket=more, norm="l2").unsettled(n) is not None
        assert QSGD(levels=levels, bucket=n).unsettled(n) is None


def test_a_leaf_shorter_than_a_bucket_counts_as_long_as_it_is() -> None:
    codec = QSGD(levels=2, bucket=512, norm="l2")
    assert codec.unsettled(15) is None and codec.unsettled(16) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "settles"), [(11, False), (12, True)])
def test_what_is_refused_grows_and_what_is_allowed_shrinks(levels: int, settles: bool) -> None:
    """Sixty readings of clients that stand still, with 512 entries that are alike: one level decides."""
    codec = QSGD(levels=levels, bucket=512, norm="l2")
    gaps = readings(codec, torch.ones(20, 512, dtype=torch.float64), 60)
    assert (codec.unsettled(512) is None) == settles
    assert gaps[-1] < 0.01 if settles else gaps[-1] > 2


@pytest.mark.parametrize("levels", [1, 2, 7])
def test_by_the_largest_size_no_error_is_ever_larger_than_a_level(levels: int) -> None:
    """The most that is left of one entry is 1/s of the largest before, whatever was drawn."""
    stands = torch.randn(20, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64) ** 3
    codec = QSGD(levels=levels, bucket=64)
    left = [float(gap) for gap in readings(codec, stands, 6, ord=torch.inf)]
    for before, after in zip([1.0, *left], left, strict=False):
        assert after <= before / levels * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("nearest", [False, True])
def test_one_bit_at_random_is_refused_since_its_error_grows(bits: int, nearest: bool) -> None:
    stands = torch.randn(20, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64) ** 3
    codec = Uniform(bits=bits, nearest=nearest)
    gaps = readings(codec, stands, 60)
    settles = codec.unsettled(64) is None
    assert settles == (bits > 1 or nearest)
    assert gaps[-1] < 0.2 if settles else gaps[-1] > 100
    assert codec.unsettled(1) is None  # one number is its own largest size
    assert Uniform(bits=bits, nearest=nearest, span=1.0).unsettled(64) is None


@pytest.mark.parametrize(("bits", "settles"), [(2, False), (3, True)])
def test_two_bits_at_random_after_a_rotation_are_refused_since_their_error_grows(bits: int, settles: bool) -> None:
    """A rotation in each round spreads what is left, so that some is large again. Without one, it shrinks."""
    stands = torch.randn(3, 5000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    codec = Uniform(bits=bits, rotate=True)
    gaps = readings(codec, stands, 60)
    assert (codec.unsettled(5000) is None) == settles and codec.unsettled(1) is None
    assert gaps[-1] < 0.01 if settles else gaps[-1] > 10
    assert readings(Uniform(bits=bits), stands, 60)[-1] < 0.01 and Uniform(bits=bits).unsettled(5000) is None


METHODS: dict[str, Method] = {
    "flame": FLAME(steps=1),
    "fedadmm": FedADMM(steps=1),
    "l2sgd": L2SGD(p=0.5),
    "fed+": FedPlus(steps=1, parties="all"),
    "lp-proj-admm": LpProjADMM(steps=1, dim=20),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_methods_that_send_changes_since_the_last_time_refuse_it(method: Method) -> None:
    data = dc.data.synthetic(clients=3, samples=20, dim=10, classes=4)
    task = Task(nn.Linear(10, 4))
    refused = {"name": "qsgd", "levels": 2, "norm": "l2"}
    with pytest.raises(SettingError, match=r"codec: the method '.*' sends '.*' as what changed .*max, [34] levels"):
        dc.simulate(task, data, method, rounds=1, codec=refused)
    for allowed in ({"name": "qsgd", "levels": 2}, refused | {"bucket": 15}, refused | {"levels": 4}):
        dc.simulate(task, data, method, rounds=1, codec=allowed, mode="vmap")
    dc.simulate(task, data, "fedavg", rounds=1, codec=refused, mode="vmap")
