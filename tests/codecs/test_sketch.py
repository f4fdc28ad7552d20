"""Count sketches: the paper's table in a plain loop, and heavy entries found."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import CountSketch, Leaf
from descant.draws import bits
from descant.mail import Mail

SEED = 0  # of the fixture `post`


def updates(post: Any, leaf: Tensor, round: int = 1) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return replace(mail, ctx=mail.ctx.at(round))


def hashed(round: int, columns: int, j: int, i: int) -> tuple[int, int]:
    """The column and the sign of entry i in row j: 31 random bits and one."""
    word = int(bits(SEED, "public", round, f"sketch {j // 2} x 0", i)) % 2**64
    half = word >> 32 * (j % 2) & 0xFFFFFFFF
    return (half >> 1) % columns, 1 - 2 * (half & 1)


def test_it_is_a_plain_loop_over_rounds_clients_and_entries(post: Any) -> None:
    rows, n, columns, k = 3, 40, 12, 4
    codec, generator = CountSketch(rows=rows, columns=0.3, share=0.1, beta=0.8), np.random.default_rng(0)
    memory = codec.memory({"x": torch.zeros(2, n).double()})
    u, v, missed = np.zeros((2, n)), np.zeros((2, n)), 0
    for t in range(1, 7):
        g = generator.normal(size=(2, n)) ** 3
        mail = updates(post, torch.from_numpy(g), t)
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"].numpy()
        for c in range(2):
            u[c] = 0.8 * u[c] + g[c]
            v[c] += u[c]
            table = np.zeros((rows, columns))  # made anew for each message
            where = [[hashed(t, columns, j, i) for i in range(n)] for j in range(rows)]
            for j in range(rows):
                for i, (column, sign) in enumerate(where[j]):
                    table[j, column] += sign * v[c, i]
            estimates = [median(where[j][i][1] * table[j, where[j][i][0]] for j in range(rows)) for i in range(n)]
            heavy = sorted(range(n), key=lambda i: -abs(estimates[i]))[:k]
            missed += set(heavy) != set(np.argsort(-np.abs(v[c]))[:k].tolist())
            sent = np.zeros(n)
            for i in heavy:
                sent[i], v[c, i], u[c, i] = v[c, i], 0.0, 0.0
            np.testing.assert_allclose(back[c], sent, rtol=1e-12)
            numbers = np.frombuffer(payloads[c])
            np.testing.assert_allclose(numbers[: rows * columns], table.ravel(), rtol=0, atol=1e-12)
            assert len(numbers) == rows * columns + k
        np.testing.assert_allclose(memory["x.momentum"].numpy(), u, rtol=0, atol=1e-12)
        np.testing.assert_allclose(memory["x.residual"].numpy(), v, rtol=0, atol=1e-12)
    assert missed, "a table this small confuses some entries"


def test_heavy_entries_are_found_among_many(post: Any) -> None:
    """Twenty of 20,000 entries hold half of the squared length: all of them are among the 200 that are sent."""
    generator = torch.Generator().manual_seed(1)
    leaf = torch.randn(3, 20_000, generator=generator)
    heavy = torch.randperm(20_000, generator=generator)[:20]
    leaf[:, heavy] = (leaf.square().sum(1, keepdim=True) / 20).sqrt() * leaf[:, heavy].sign()
    back = returned(CountSketch(), updates(post, leaf))["x"]
    assert torch.equal(back[:, heavy], leaf[:, heavy])
    assert bool(((back != 0).sum(1) == 200).all())


def test_hashes_spread_evenly_and_signs_are_fair(post: Any) -> None:
    """Counts of 100 columns: chi-squared of 99 degrees, above 180 with a chance below 2e-6 in each of five rows."""
    codec, mail = CountSketch(columns=0.001), updates(post, torch.zeros(1, 100_000))
    hashes = codec._hashes(Leaf(mail.ctx, "x", mail.clients), slice(0, 100_000), torch.zeros(1, 5, 100))
    columns = torch.stack([torch.bincount(column, minlength=100) for column, _ in hashes])
    sign = torch.stack([sign for _, sign in hashes])
    assert bool((((columns - 1000) ** 2 / 1000).sum(1) < 180).all())
    assert bool((sign.mean(1).abs() < 6 / 100_000**0.5).all()), "within six standard deviations"
    assert bool(((sign[0] * sign[1:]).mean(1).abs() < 6 / 100_000**0.5).all()), "rows do not follow each other"


def test_an_entry_that_a_collision_hides_is_found_in_another_round(post: Any) -> None:
    """Hashes are drawn anew, so nothing waits behind the same neighbour for ever."""
    codec = CountSketch(rows=1, columns=0.5, share=0.05, beta=0.0)
    memory = codec.memory({"x": torch.zeros(1, 20)})
    leaf, arrived = torch.ones(1, 20), torch.zeros(1, 20)
    for t in range(1, 200):
        mail = updates(post, leaf if t == 1 else torch.zeros(1, 20), t)
        memory, payloads = codec.encode(mail.ctx, memory, mail)
        arrived += codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"]
    assert torch.equal(arrived, leaf) and not memory["x.residual"].any()
