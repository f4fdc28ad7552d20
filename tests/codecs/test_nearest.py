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

from descant.codecs import CodecError, Uniform
from descant.mail import Mail
from descant.rounding import fitting, nearest, on_grid


def updates(post: Any, leaf: Tensor) -> Mail:
    mail: Mail = post({"x": leaf}, {"x": torch.zeros_like(leaf[:1])})
    return mail


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_every_number_goes_to_the_nearest_point_of_its_grid(post: Any, bits: int) -> None:
    v = np.random.default_rng(0).normal(size=(3, 21)) ** 3
    v[1, :15] = 0.0  # which takes a grid with a zero, where there are bits for it
    mail = updates(post, torch.from_numpy(v))
    codec = Uniform(bits=bits, nearest=True)
    _, payloads = codec.encode(mail.ctx, {}, mail)
    back = codec.decode(mail.ctx, {}, payloads, blank(mail))[1]["x"].numpy()
    for k, payload in enumerate(payloads):
        span = np.frombuffer(payload[:8], np.float64)[0]
        assert span < 0 or k != 1 or bits == 1
        grid = np.linspace(-abs(span), abs(span), 2**bits - (span < 0))
        assert np.abs(back[k] - grid[np.abs(v[k][:, None] - grid).argmin(1)]).max() < 1e-12
        assert len(payload) == 8 + -(-21 * bits // 8)


SIZES = st.floats(-1e6, 1e6).map(lambda size: size if abs(size) > 1e-100 else 0.0)  # whose squares are no zeros


@given(arrays(np.float64, (2, 9), elements=SIZES), st.integers(1, 16))
def test_the_error_is_smaller_than_the_update(v: np.ndarray, bits: int) -> None:
    rows = torch.from_numpy(v)
    span = fitting(rows, bits)
    error = (on_grid(nearest(rows, span, bits), span, bits) - rows).square().sum(1)
    mean, size = rows.abs().mean(1), span[:, 0].abs()
    whole = rows.square().sum(1)
    assert bool((error <= whole - 9 * mean**2 + 1e-9 * whole).all())
    assert bool(((size >= mean * (1 - 1e-9)) & (size <= rows.abs().amax(1) * (1 + 1e-9))).all())


@given(arrays(np.float64, (1, 7), elements=st.floats(-9, 9).map(lambda size: round(size, 3))), st.integers(2, 5))
def test_no_grid_that_is_tried_leaves_a_smaller_error(v: np.ndarray, bits: int) -> None:
    """Twelve spans from the mean to the largest size, with all points or with one less and zero among them."""

    def error(grid: np.ndarray) -> float:
        return float((np.abs(v[0][:, None] - grid).min(1) ** 2).sum())

    span = float(fitting(torch.from_numpy(v), bits))
    found = error(np.linspace(-abs(span), abs(span), 2**bits - (span < 0)))
    mean, most = np.abs(v).mean(), np.abs(v).max()
    for size in np.geomspace(mean, most, 12) if most else []:
        for points in (2**bits, 2**bits - 1):
            assert found <= error(np.linspace(-size, size, points)) + 1e-9 * most**2


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


@pytest.mark.parametrize("zeros", [0.5, 0.9])
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_what_is_zero_in_all_messages_stays_zero(post: Any, bits: int, zeros: float) -> None:
    """Points on both sides of zero would move it by as much in every message, and in their mean."""
    v = torch.randn(20, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v[:, : int(zeros * 400)] = 0.0
    back = returned(Uniform(bits=bits, nearest=True), updates(post, v))["x"]
    assert torch.equal(back[v == 0], v[v == 0])
    error, whole = float((back - v).square().sum()), float(v.square().sum())
    assert error < {2: 0.25, 3: 0.06, 8: 1e-3}[bits] * whole


@pytest.mark.parametrize("scale", [1e-320, 1e-165, 1.0, 1e160, 1e308])
def test_numbers_of_any_size_are_rounded_as_well(scale: float) -> None:
    """Their squares, or their sum, need not be numbers."""
    unit = torch.tensor([[0.9, -0.7, 0.3, -1.0, 0.55, 0.2]], dtype=torch.float64)
    v = unit * scale
    span = fitting(v, 8)
    assert bool(span.isfinite().all())
    near = on_grid(nearest(v, span, 8), span, 8) / scale
    assert float((near - v / scale).abs().max()) < (1 / 255 if scale > 1e-300 else 0.01)


def test_a_span_that_is_not_finite_is_refused(post: Any) -> None:
    mail = updates(post, torch.ones(1, 9))
    with pytest.raises(CodecError, match=r"the span of a message must be finite$"):
        Uniform(nearest=True).decode(mail.ctx, {}, [np.float32(np.inf).tobytes() + b"\0" * 9], blank(mail))


def test_nothing_stays_nothing(post: Any) -> None:
    for leaf in (torch.zeros(2, 5), torch.zeros(2, 0)):
        assert torch.equal(returned(Uniform(bits=1, nearest=True), updates(post, leaf))["x"], leaf)
