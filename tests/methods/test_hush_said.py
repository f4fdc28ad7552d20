"""Hush: what all parties build from what was said, and what a client pays for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import hadamard

from descant import FederatedData, Run, Task
from descant.codecs import Uniform
from descant.context import Context
from descant.draws import bits, stream
from descant.methods import Hush
from tests import held
from tests.methods.hush_loop import FULL, ROUNDS, D, M, matrix, run
from tests.methods.runs import SEED, N, Vector, cohort_of, column, far


def said(task: Task, data: FederatedData, method: Hush) -> tuple[list[Vector], Run]:
    """The q of every step, read from the bytes that were said, by bits, and turned back; and the whole run."""
    wide = method.bits_down
    assert wide is not None
    steps = []
    for rounds in range(1, ROUNDS + 1):  # a shorter run is the beginning of a longer one
        done = run(task, data, method, rounds=rounds, cohort=3)
        server = held.by_server(done)
        octets = method.said(server["q"], server["span"]).numpy()
        span, bits = octets[:8].view(np.float64)[0], np.unpackbits(octets[8:], bitorder="little")
        weights = 2 ** np.arange(wide)
        points = np.array([int(bits[i * wide :][:wide] @ weights) for i in range(M)])
        half = 2 ** (wide - 1) - 1  # a grid that holds zero has so many points on each side of it
        read = -span * (points - half) / half if span < 0 else span * (2 * points / (2**wide - 1) - 1)
        steps.append(rotation(SEED, rounds).T @ read if method.rotate else read)
        assert len(octets) == 8 + -(-M * wide // 8)
    return steps, done


def rotation(seed: int, step: int) -> Vector:
    """R of a step, of M = 5 dimensions: signs, H_4 / 2 of the first four, other signs, H_4 / 2 of the last four."""
    key = bits(seed, "public", step, "hush rotation", torch.arange(1))[0]
    words = [int(word) for word in stream(key, torch.arange(2))]
    R = np.eye(M)
    for word, at in zip(words, (slice(0, 4), slice(1, 5)), strict=True):
        W = np.eye(M)
        W[at, at] = hadamard(4) / 2
        R = W @ np.diag([1 - 2 * (word >> i & 1) for i in range(M)]) @ R
    return R


@pytest.mark.few(2)
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize(
    ("bits", "pool", "beta"), [(8, None, 0.6), (3, 2, 0.6), (4, 2, 0.0), (1, 1, 0.9), ((2, 1), 2, 0.6)]
)
def test_all_parties_build_w_from_what_was_said(
    data: FederatedData, linear: Task, bits: Any, pool: int | None, beta: float, nearest: bool, rotate: bool
) -> None:
    """Step by step; and, with a pool, from the sums of each subspace."""
    method = Hush(**FULL | {"bits": bits}, pool=pool, beta=beta, nearest=nearest, rotate=rotate)
    steps, done = said(linear, data, method)
    x0 = linear.start().numpy()
    w, velocity = x0, np.zeros(D)
    for t, q in enumerate(steps):
        velocity = beta * velocity + matrix(method, t, linear).T @ q
        w = w + velocity
    assert far(held.shared(done), w) <= 1e-12 and far(w, x0) > 1e-2
    assert far(held.by_server(done)["velocity"], velocity) <= 1e-12
    if pool is not None:
        A, B = np.zeros((pool, M)), np.zeros((pool, M))
        for t, q in enumerate(steps):
            A[t % pool] += q
            B[t % pool] += beta ** (ROUNDS - 1 - t) * q
        U = np.stack([matrix(method, j, linear) for j in range(pool)])
        anew = x0 + np.einsum("pmd,pm->d", U, (A - beta * B) / (1 - beta))
        assert far(held.shared(done), anew) <= 1e-12
        assert method.numbers(D) == min(D, pool * M) * (2 if beta else 1)


@pytest.mark.parametrize(
    ("settings", "anew"),
    [
        ({"bits": None}, 2 * D * 8),  # w and the velocity
        ({"bits": None, "beta": 0.0}, D * 8),
        ({"bits": None, "pool": 1}, 2 * M * 8),
        ({"bits": None, "pool": 2, "beta": 0.0}, 2 * M * 8),
        ({"bits": 5}, 2 * D * 8),
        ({"bits": 5, "pool": 1, "beta": 0.0}, M * 8),
    ],
    ids=str,
)
@pytest.mark.few(3)
def test_a_client_pays_for_what_it_missed_or_for_all_anew(
    data: FederatedData, linear: Task, settings: dict[str, Any], anew: int
) -> None:
    rounds, cohort = 14, 1
    method = Hush(**FULL | {"steps": 1} | settings)
    done = run(linear, data, method, rounds=rounds, cohort=cohort)
    one = 8 * M if method.bits is None else 8 + 4  # of doubles: numbers, or a span and 25 bits
    known, paid, cheaper = [0] * N, [0] * N, set()
    for t in range(1, rounds + 1):
        for k in cohort_of(t, cohort):
            missed = one * (t - 1 - known[k])
            cheaper.add(anew < missed)
            paid[k] += min(missed, anew)
            known[k] = t - 1
    assert done.history.spent[rounds]["bytes_down"].tolist() == paid
    assert held.by_clients(done)["known"].tolist() == known
    assert cheaper == {True, False} or (method.bits == 5 and method.pool is None)
    assert column(done, "bytes_up") == [one + 4] * rounds, "what is said, and the number of examples"


def test_mail_that_is_lost_is_no_step(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, Hush(**FULL), cohort=1, lost=0.5, rounds=12)
    received = [row["received"] for row in done.history.rounds]
    assert 0 < sum(received) < 12
    assert int(held.by_server(done)["step"]) == sum(received)


@pytest.mark.slow
def test_numbers_in_few_bits_are_right_in_the_mean(data: FederatedData, linear: Task) -> None:
    """After one round, over seeds, which draw other subspaces: each beside its own run without rounding."""
    gaps = []
    for seed in range(40):
        exact, coarse = (
            held.shared(run(linear, data, Hush(**FULL | {"bits": bits}), rounds=1, seed=seed)) for bits in (None, 2)
        )
        gaps.append(coarse - exact)
    gap = torch.stack(gaps)
    assert float(gap.abs().mean()) > 1e-3, "it is rounded"
    error = gap.std(0) / len(gap) ** 0.5
    assert float((gap.mean(0) / error).abs().max()) < 4


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_what_is_said_of_rotated_numbers_is_as_long_as_the_mean_asks(linear: Task, bits: int) -> None:
    """For what is said, y, and q as it is rotated, <y, R q> = ||q||^2: otherwise nearest points are too short."""
    ctx = Context(1, SEED, N, linear.layout, linear.start())
    q = torch.tensor([0.3, -1.7, 0.2, 0.9, -0.4], dtype=torch.float64)
    for rotate in (True, False):
        method = Hush(**FULL | {"bits": bits}, rotate=rotate)
        said, _ = method.heard(q, ctx, method.rotation(ctx, 2))
        R = rotation(SEED, 3) if rotate else np.eye(M)
        right = float(q @ q)
        assert (float(said.numpy() @ R @ q.numpy()) == pytest.approx(right, rel=1e-12)) == rotate


def test_clients_rotate_too_where_the_codec_is_the_methods_own(data: FederatedData, linear: Task) -> None:
    method = Hush(**FULL | {"bits": 2}, rotate=True)
    ours, same, other = (
        held.shared(run(linear, data, method, codec=codec))
        for codec in ("native", Uniform(bits=2, nearest=True, rotate=True), Uniform(bits=2, nearest=True))
    )
    assert torch.equal(ours, same) and far(ours, other) > 1e-3


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("bits", [1, 5])
def test_clients_may_round_to_other_bits_than_the_server(
    data: FederatedData, linear: Task, bits: int, rotate: bool
) -> None:
    """That is the codec `uniform` in their bits, under a server that says its own as ever."""
    plain = Hush(**FULL | {"bits": bits}, rotate=rotate)
    ours = run(linear, data, replace(plain, bits=(4, bits)), cohort=3)
    same = run(linear, data, plain, cohort=3, codec=Uniform(bits=4, nearest=True, rotate=rotate))
    other = run(linear, data, plain, cohort=3)
    assert torch.equal(held.shared(ours), held.shared(same)) and far(held.shared(ours), held.shared(other)) > 1e-6
    assert column(ours, "bytes_up") == [3 * (8 + -(-M * 4 // 8) + 4)] * ROUNDS, (
        "a span, 20 bits, a number of examples"
    )
    assert column(ours, "bytes_down") == column(other, "bytes_down"), "what the server says is as long as before"
