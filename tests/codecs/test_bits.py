"""Codes of whole numbers: as long as they should be, and read back as they were."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descant.codecs.bits import Fields, Reader, Unary, lots, write
from descant.codecs.universal import elias, read_elias, read_rice, rice
from descant.errors import CodecError

rows = st.integers(0, 4).flatmap(
    lambda k: st.lists(st.lists(st.integers(1, 2**40), min_size=k, max_size=k), min_size=1, max_size=4)
)


def as_bytes(bits: str) -> bytes:
    """A string of 0 and 1 as bytes, the first bit the lowest, filled up with zeros."""
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))


@given(rows)
def test_elias_is_a_plain_loop(numbers: list[list[int]]) -> None:
    coded = write(*elias(np.array(numbers, dtype=np.int64).reshape(len(numbers), -1)))
    for row, payload in zip(numbers, coded, strict=True):
        unary = "".join("0" * (n.bit_length() - 1) + "1" for n in row)
        rest = "".join(bin(n)[3:][::-1] for n in row)  # without '0b1', the lowest bit first
        assert len(unary + rest) == sum(2 * int(log2(n)) + 1 for n in row), "the length of Elias's gamma code"
        assert payload == as_bytes(unary + rest)
    bits = Reader(coded)
    assert read_elias(bits, len(numbers[0]), 2**40).tolist() == numbers
    bits.finish()


@given(st.lists(st.sets(st.integers(0, 999), min_size=7, max_size=7).map(sorted), min_size=1, max_size=4))
def test_rising_indices_come_back(indices: list[list[int]]) -> None:
    coded = write(*rice(np.array(indices), 1000))
    bits = Reader(coded)
    assert read_rice(bits, 7, 1000).tolist() == indices
    bits.finish()
    assert all(8 * len(payload) <= 7 * (log2(1000 / 7) + 3) + 7 for payload in coded), "wherever they lie"


@pytest.mark.parametrize(("n", "k"), [(100_000, 100), (100_000, 1_000), (100_000, 30_000)])
def test_an_index_takes_few_bits_where_indices_lie_anywhere(n: int, k: int) -> None:
    index = np.sort(np.random.default_rng(0).choice(n, k, replace=False))[None]
    p = k / n
    entropy = -log2(p) - (1 - p) / p * log2(1 - p)  # bits an index at least, where each is sent with chance p
    (payload,) = write(*rice(index, n))
    assert entropy < 8 * len(payload) / k < entropy + 0.5


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 5), (7, 1), (0, 0)])
def test_indices_at_the_edges(n: int, k: int) -> None:
    for index in (np.arange(k)[None], np.arange(n - k, n)[None]):
        bits = Reader(write(*rice(index, n)))
        assert read_rice(bits, k, n).tolist() == index.tolist()
        bits.finish()


def test_parts_follow_each_other() -> None:
    numbers, widths = np.array([[5, 0, 3], [1, 7, 0]]), np.array([[3, 0, 2], [1, 3, 1]])
    coded = write(Unary(np.array([[2, 0], [0, 9]])), Fields(numbers, widths))
    assert coded == [as_bytes("0011" + "101" + "11"), as_bytes("1" + "0" * 9 + "1" + "1" + "111" + "0")]
    bits = Reader(coded)
    assert bits.unary(2).tolist() == [[2, 0], [0, 9]]
    assert bits.fields(widths).tolist() == numbers.tolist()
    bits.finish()


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=3))
def test_any_bytes_are_read_or_refused(payloads: list[bytes]) -> None:
    for read in (lambda bits: read_elias(bits, 3, 9), lambda bits: read_rice(bits, 3, 20)):
        bits = Reader(payloads)
        try:
            numbers = read(bits)
            bits.finish()
        except CodecError:
            continue
        assert numbers.shape == (len(payloads), 3) and numbers.max() < 20
        assert bool((np.diff(numbers, axis=1) > 0).all()) or numbers.max() <= 9


def test_a_number_that_is_too_large_is_refused() -> None:
    for number in (6, 7, 8, 9, 2**40):
        with pytest.raises(CodecError, match="at most 5"):
            read_elias(Reader(write(*elias(np.array([[number]])))), 1, 5)
    with pytest.raises(CodecError, match="at most 5"):  # of 73 bits
        read_elias(Reader([bytes(9) + b"\1" + bytes(9)]), 1, 5)


def recursive(n: int) -> int:
    """The bits of Elias's recursive (omega) code, which the QSGD paper uses."""
    length = 1
    while n > 1:
        length += n.bit_length()
        n = n.bit_length() - 1
    return length


def test_below_128_no_number_is_longer_than_in_the_recursive_code() -> None:
    lengths = [8 * len(write(*elias(np.full((1, 8), n)))[0]) // 8 for n in range(1, 129)]  # of one of eight
    assert all(length <= recursive(n) for n, length in enumerate(lengths[:127], 1))
    assert lengths[127] > recursive(128)


def test_indices_beyond_the_end_are_refused() -> None:
    coded = write(*rice(np.array([[0, 9]]), 10))
    with pytest.raises(CodecError, match="below 9"):
        read_rice(Reader(coded), 2, 9)


@pytest.mark.parametrize(
    ("payload", "why"), [(b"\x01\0", "goes on"), (b"\x03", "end in zeros"), (b"", "ends before")]
)
def test_bytes_of_another_length_are_refused(payload: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        bits = Reader([payload])
        bits.unary(1)
        bits.finish()


@pytest.mark.parametrize(("rows", "numbers"), [(0, 5), (3, 0), (7, 10**6), (2, 10**8)])
def test_rows_are_worked_on_in_lots(rows: int, numbers: int) -> None:
    found = lots(rows, numbers)
    assert [i for lot in found for i in range(rows)[lot]] == list(range(rows))
    assert all((lot.stop - lot.start) * numbers <= max(numbers, 2**22) for lot in found)
