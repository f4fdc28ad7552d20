"""Rotations: orthonormal, undone to the last digits, the same matrix as one of SciPy's, and spread all over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard

from descant import rotation
from descant.draws import bits, stream
from descant.rotation import rotated, rotated_back
from descant.rounding import fitting, nearest, on_grid, unbiased


def matrix(n: int, key: int) -> np.ndarray:
    """R, from its description: twice signs, and Hadamard's matrix on chunks of every k-th of the first or last."""
    length = 1 << (n.bit_length() - 1)
    length = min(length, rotation.CHUNK)
    chunks = n // length
    words = [int(word) & (2**64 - 1) for word in stream(torch.tensor(key), torch.arange(2 * -(-n // 64)))]
    drawn = [1 - 2 * (word >> i & 1) for word in words for i in range(64)]
    R = np.eye(n)
    for turn, first in enumerate((0, n - chunks * length)):
        W = np.eye(n)
        for chunk in range(chunks):
            at = first + chunk + chunks * np.arange(length)
            W[np.ix_(at, at)] = hadamard(length) / np.sqrt(length)
        begin = turn * -(-n // 64) * 64
        R = W @ np.diag(drawn[begin : begin + n]) @ R
    return R


@pytest.mark.parametrize("chunk", [4, 4096])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 100])
def test_a_rotation_is_signs_and_hadamard_matrices_of_the_first_and_of_the_last(
    n: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "CHUNK", chunk)
    R = rotated(torch.eye(n, dtype=torch.float64), torch.tensor(-7)).T.numpy()
    np.testing.assert_allclose(R, matrix(n, -7), atol=1e-14)
    np.testing.assert_allclose(R @ R.T, np.eye(n), atol=1e-13)


@given(st.integers(0, 9000), st.integers(1, 3), st.integers(-(2**63), 2**63 - 1))
def test_what_is_turned_back_is_what_was_turned(n: int, rows: int, key: int) -> None:
    v = torch.randn(rows, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = rotated(v, torch.tensor(key))
    torch.testing.assert_close(rotated_back(turned, torch.tensor(key)), v, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(turned.norm(dim=1), v.norm(dim=1), rtol=1e-11, atol=0.0)


@pytest.mark.parametrize("n", [64, 1000, 8834])
def test_a_single_number_is_spread_over_a_chunk_or_half_of_the_places(n: int) -> None:
    for at in (0, n // 2, n - 1):
        turned = rotated(torch.eye(n, dtype=torch.float64)[at : at + 1], torch.tensor(3))
        assert int((turned.abs() > 1e-9).sum()) >= min(rotation.CHUNK, n // 2)
        assert float(turned.abs().max()) <= 8 / n**0.5


@pytest.mark.parametrize("count", [1, 2, 3])
def test_rounded_to_the_nearest_the_mean_over_rotations_is_right(count: int) -> None:
    """And for one bit the error is that of DRIVE: pi/2 - 1 of the square, of numbers that are nearly normal."""
    v = torch.zeros(1, 256, dtype=torch.float64)
    v[0, :40] = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 3
    read = []
    for key in bits(0, "keys", torch.arange(600)):
        turned = rotated(v, key)
        span = fitting(turned, count)
        points = nearest(turned, span, count)
        y = on_grid(points, unbiased(turned, points, span, count), count)
        assert float((y * turned).sum()) == pytest.approx(float(v.square().sum()), rel=1e-12)
        read.append(rotated_back(y, key))
    every = torch.cat(read)
    gap, error = every.mean(0) - v[0], every.std(0) / len(every) ** 0.5
    assert float((gap / error).abs().max()) < 4.5
    assert float((gap / error).square().mean()) == pytest.approx(1.0, abs=0.35)
    if count == 1:
        left = float((every - v).square().sum(1).mean() / v.square().sum())
        assert left == pytest.approx(torch.pi / 2 - 1, rel=0.05)


def longer(v: torch.Tensor, bits: int) -> torch.Tensor:
    span = fitting(v, bits)
    return unbiased(v, nearest(v, span, bits), span, bits)


@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e160, 1e300])
def test_a_span_is_made_longer_by_as_much_whatever_the_size_of_numbers(scale: float) -> None:
    v = torch.tensor([[0.9, -0.7, 0.3, -1.0, 0.55, 0.2]], dtype=torch.float64)
    plain, scaled = (longer(x, 2) / fitting(x, 2) for x in (v, v * scale))
    torch.testing.assert_close(plain, scaled, rtol=1e-6, atol=0.0)


def test_nothing_has_no_span() -> None:
    for v in (torch.zeros(2, 5), torch.zeros(2, 0)):
        assert torch.equal(longer(v, 1), torch.zeros(2, 1))
