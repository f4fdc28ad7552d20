"""LBGM: one number where an update follows the look-back, and the projection onto it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.post import blank

from descant.codecs import LBGM
from descant.errors import SettingError
from descant.mail import Mail
from descant.trees import Tree


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


def sent(post: Any, codec: LBGM, rows: list[Tensor]) -> tuple[list[list[bytes]], list[Tensor], Tree, Tree]:
    """The payloads of rounds, what arrived, and what both ends remember."""
    memory, copies = codec.memory({"x": rows[0]}), codec.copies({"x": rows[0]})
    payloads, arrived = [], []
    for leaf in rows:
        mail = updates(post, leaf)
        memory, messages = codec.encode(mail.ctx, memory, mail)
        copies, back = codec.decode(mail.ctx, copies, messages, blank(mail))
        payloads.append(messages)
        arrived.append(back["x"])
    return payloads, arrived, memory, copies


@pytest.mark.parametrize("delta", [0.0, 0.2, 0.6])
def test_it_is_a_plain_loop_over_rounds_and_clients(post: Any, delta: float) -> None:
    generator = np.random.default_rng(1)
    drift = generator.normal(size=(3, 15))
    rows = [drift * generator.uniform(-2, 2, (3, 1)) + 0.5 * generator.normal(size=(3, 15)) for _ in range(12)]
    payloads, arrived, memory, copies = sent(post, LBGM(delta=delta), [torch.from_numpy(row) for row in rows])
    back, short = np.zeros((3, 15)), 0
    for t, row in enumerate(rows):
        for k, g in enumerate(row):
            gg, ll, gl = g @ g, back[k] @ back[k], g @ back[k]
            error = 1 - gl**2 / (gg * ll) if ll else 1.0  # the look-back phase: sin^2
            if error <= delta:
                read, size = gl / np.linalg.norm(back[k]) ** 2 * back[k], 1 + 8
                short += 1
                assert np.sum((g - read) ** 2) == pytest.approx(error * gg) and error <= delta
            else:
                back[k] = read = g
                size = 1 + 8 * 15
            np.testing.assert_allclose(arrived[t][k].numpy(), read, rtol=1e-12)
            assert len(payloads[t][k]) == size
    assert (short > 0) == (delta > 0) and short < 36
    np.testing.assert_array_equal(memory["x.whole"].numpy(), back)
    np.testing.assert_array_equal(copies["x.whole"].numpy(), back)


def test_a_multiple_of_the_look_back_arrives_whole(post: Any) -> None:
    """However long both are: the authors' code, which divides by the norm once, is off by its length."""
    leaf = torch.randn(2, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1e150
    factors = (1.0, -3.0, 1e-200, 0.0, 1e150)
    payloads, arrived, _, _ = sent(post, LBGM(), [leaf * factor for factor in factors])
    for factor, back, messages in zip(factors, arrived, payloads, strict=True):
        assert torch.allclose(back, leaf * factor, rtol=1e-12, atol=0)
        assert {len(payload) for payload in messages} == {1 + 8 * (9 if factor == 1.0 else 1)}


def test_a_multiple_that_is_no_number_is_not_sent(post: Any) -> None:
    tiny, huge = (torch.tensor([[size] * 3], dtype=torch.float64) for size in (1e-300, 1e300))
    payloads, arrived, _, _ = sent(post, LBGM(), [tiny, huge])
    assert [len(messages[0]) for messages in payloads] == [25, 25] and torch.equal(arrived[1], huge)


def test_one_number_is_never_a_multiple(post: Any) -> None:
    payloads, arrived, _, _ = sent(post, LBGM(), [torch.tensor([[2.0]]), torch.tensor([[3.0]])])
    assert payloads[1] == [b"\1" + np.float32(3.0).tobytes()] and arrived[1].tolist() == [[3.0]]


def test_fields_are_checked() -> None:
    for delta in (-0.1, 1.1):
        with pytest.raises(SettingError, match=f"LBGM.delta = {delta}"):
            LBGM(delta=delta)
