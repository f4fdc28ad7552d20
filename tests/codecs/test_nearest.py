"""Uniform quantisation to the nearest point: the error is small, and never as large as the update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor
from toys.post import blank, returned

from descant.codecs import Uniform
from descant.mail import Mail
from descant.rounding import fitting, nearest, on_grid


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_every_number_goes_to_the_nearest_point_of_its_grid(post: Any, bits: int) -> None:
    v = np.random.default_rng(0).normal(size=(3, 21)) ** 3
    mail = updates(post, torch.from_numpy(v))
    codec = Uniform(bits=bits, nearest=True)
    _, payloads = codec.encode(mail.ctx, {}, mail)
    back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"].numpy()
    for k, payload in enumerate(payloads):
        span = np.frombuffer(payload[:8], np.float64)[0]
        grid = np.linspace(-span, span, 2**bits)
        assert np.abs(back[k] - grid[np.abs(v[k][:, None] - grid).argmin(1)]).max() < 1e-12
        assert len(payload) == 8 + -(-21 * bits // 8)


SIZES = st.floats(-1e6, 1e6).map(lambda size: size if abs(size) > 1e-100 else 0.0)  # whose squares are no zeros


@given(arrays(np.float64, (2, 9), elements=SIZES), st.integers(1, 16))
def test_the_error_is_smaller_than_the_update(v: np.ndarray, bits: int) -> None:
    rows = torch.from_numpy(v)
    span = fitting(rows, bits)
    error = (on_grid(nearest(rows, span, bits), span, bits) - rows).square().sum(1)
    mean = rows.abs().mean(1)
    whole = rows.square().sum(1)
    assert bool((error <= whole - 9 * mean**2 + 1e-9 * whole).all())
    assert bool(((span[:, 0] >= mean * (1 - 1e-9)) & (span[:, 0] <= rows.abs().amax(1) * (1 + 1e-9))).all())


@pytest.mark.parametrize(("bits", "least"), [(1, 0.3634), (2, 0.1188), (3, 0.03744), (4, 0.01154)])
def test_of_normal_numbers_the_error_is_that_of_the_best_even_grid(bits: int, least: float) -> None:
    """Max, 1960, Quantizing for Minimum Distortion, Table II: the least error of equally spaced outputs."""
    v = torch.randn(1, 200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    span = fitting(v, bits)
    error = float((on_grid(nearest(v, span, bits), span, bits) - v).square().mean())
    assert 0.98 * least < error < 1.08 * least  # of a few spans that are tried, one is near the best


def test_random_rounding_errs_more_and_is_right_on_average(post: Any) -> None:
    v = torch.randn(1, 5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    close, random = (returned(Uniform(bits=2, nearest=near), updates(post, v))["x"] for near in (True, False))
    assert float((close - v).square().sum()) < 0.15 * float((random - v).square().sum())
    assert float((random * v).sum() / v.square().sum()) == pytest.approx(1.0, abs=0.1)
    assert 0.8 < float((close * v).sum() / v.square().sum()) < 0.95


def test_nothing_stays_nothing(post: Any) -> None:
    for leaf in (torch.zeros(2, 5), torch.zeros(2, 0)):
        assert torch.equal(returned(Uniform(bits=1, nearest=True), updates(post, leaf))["x"], leaf)
