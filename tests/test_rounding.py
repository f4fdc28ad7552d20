"""Numbers in few bits: what is packed comes back, what lies on the grid stays, and the mean is right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.rounding import length, on_grid, packed, rounded, unpacked


@given(bits=st.integers(1, 16), n=st.integers(0, 40), seed=st.integers(0, 99))
def test_points_come_back_from_their_bytes(bits: int, n: int, seed: int) -> None:
    points = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**bits, (3, n)))
    octets = packed(points, bits)
    assert (
        octets.dtype == torch.uint8
        and octets.shape == (3, length(n, bits))
        and length(n, bits) == (n * bits + 7) // 8
    )
    assert torch.equal(unpacked(octets, bits, n), points)


def test_nothing_takes_no_bytes() -> None:
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    assert packed(nothing, 3).shape == (2, 0) and unpacked(packed(nothing, 3), 3, 0).shape == (2, 0)


@pytest.mark.parametrize("bits", range(1, 17))
def test_no_messages_take_no_bytes(bits: int) -> None:
    assert packed(torch.zeros(0, 5, dtype=torch.int64), bits).shape == (0, length(5, bits))


def test_the_bytes_are_the_bits_of_one_point_after_the_other() -> None:
    points = [5, 0, 7, 2, 6]  # in three bits each, the lowest first
    string = "101" + "000" + "111" + "010" + "011" + "0"
    octets = [int(string[at : at + 8][::-1], 2) for at in (0, 8)]
    assert packed(torch.tensor([points]), 3).tolist() == [octets]


@given(bits=st.integers(1, 16), n=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_bytes_are_those_of_numpy(bits: int, n: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 2**bits, (3, n))
    string = (points[..., None] >> np.arange(bits) & 1).reshape(3, -1).astype(np.uint8)
    octets = packed(torch.from_numpy(points), bits)
    assert octets.numpy().tolist() == np.packbits(string, axis=1, bitorder="little").tolist()


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_on_the_grid_stays_there(bits: int, dtype: torch.dtype) -> None:
    points = torch.arange(2**bits)[None]
    span = torch.tensor([[3.7]], dtype=dtype)
    numbers = on_grid(points, span, bits)
    assert numbers.dtype == dtype and float(numbers[0, 0]) == -float(span) and float(numbers[0, -1]) == float(span)
    half = torch.full(points.shape, 0.5, dtype=torch.float64)
    assert torch.equal(rounded(numbers, span, bits, half), points)
    even = float(span) * np.linspace(-1, 1, 2**bits)
    np.testing.assert_allclose(numbers[0].numpy(), even, rtol=0, atol=4 * torch.finfo(dtype).eps)


@given(number=st.floats(-1, 1), bits=st.integers(1, 5))
def test_over_all_draws_the_mean_is_the_number(number: float, bits: int) -> None:
    drawn = (torch.arange(10_000, dtype=torch.float64) + 0.5)[None] / 10_000
    one = torch.ones(1, 1, dtype=torch.float64)
    back = on_grid(rounded(number * torch.ones_like(drawn), one, bits, drawn), one, bits)
    assert float(back.mean()) == pytest.approx(number, abs=2e-4 / (2**bits - 1))
    assert float(back.max() - back.min()) <= 2 / (2**bits - 1) + 1e-12, "to one of its two neighbours"


def test_what_lies_beyond_the_span_becomes_its_end_and_a_span_of_zero_is_zero() -> None:
    v, drawn = torch.tensor([[-9.0, 9.0], [0.0, 0.0]]), torch.full((2, 2), 0.4, dtype=torch.float64)
    span = torch.tensor([[2.0], [0.0]])
    assert on_grid(rounded(v, span, 4, drawn), span, 4).tolist() == [[-2.0, 2.0], [0.0, 0.0]]
