"""Strings of bits as bytes, for the messages of many clients at once.

A code of whole numbers has a `Unary` part, which says how long each number is, and a part of `Fields`, which holds
the rest of it. Each part is written for all numbers before the next begins. So the code is as long as if the two
halves of every number stood side by side, and all numbers are read at once: no loop goes over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from descant.errors import CodecError

Whole = NDArray[np.int64]
_AT_ONCE = 1 << 22  # numbers: what is worked on then takes a few hundred MB


class Unary(NamedTuple):
    """Every number n >= 0 as n zeros and a one."""

    numbers: Whole  # [S, k]

    def lengths(self) -> Whole:
        lengths: Whole = self.numbers.sum(1) + self.numbers.shape[1]
        return lengths

    def put(self, bits: NDArray[np.uint8], start: Whole) -> None:
        ones = (self.numbers + 1).cumsum(1)
        ones += start[:, None] - 1
        bits[ones] = 1


class Fields(NamedTuple):
    """Every number in as many bits as its width says, the lowest bit first."""

    numbers: Whole  # [S, k]
    widths: Whole  # [S, k]

    def lengths(self) -> Whole:
        lengths: Whole = self.widths.sum(1)
        return lengths

    def put(self, bits: NDArray[np.uint8], start: Whole) -> None:
        for bit, which, place in _bits_of(self.widths, start):
            bits[place] = self.numbers.ravel()[which] >> bit & 1


def write(*parts: Unary | Fields) -> list[bytes]:
    """The parts one after the other, as bytes for each of the S rows; the last byte is filled up with zeros."""
    lengths = [part.lengths() for part in parts]
    size = -(-np.sum(lengths, axis=0) // 8)  # [S] bytes
    ends = size.cumsum()
    bits, start = np.zeros(8 * size.sum(), np.uint8), 8 * (ends - size)
    for part, length in zip(parts, lengths, strict=True):
        part.put(bits, start)
        start = start + length
    packed = np.packbits(bits, bitorder="little").tobytes()
    return [packed[end - length : end] for end, length in zip(ends.tolist(), size.tolist(), strict=True)]


class Reader:
    """The bits of S payloads, read from their beginnings on."""

    def __init__(self, payloads: list[bytes]) -> None:
        size = 8 * np.array([len(payload) for payload in payloads], dtype=np.int64)
        self._bits = np.unpackbits(np.frombuffer(b"".join(payloads), np.uint8), bitorder="little")
        self._ends = size.cumsum()
        self._at = self._ends - size  # [S] the next bit of each

    def unary(self, count: int) -> Whole:
        """The next `count` numbers [S, count] of each payload, from `Unary`."""
        if not count:
            return np.zeros((len(self._at), 0), np.int64)
        ones = np.flatnonzero(self._bits)
        first, last = np.searchsorted(ones, self._at), np.searchsorted(ones, self._ends)
        if bool((last - first < count).any()):
            raise CodecError(f"a payload ends before the {count} numbers that it was to hold")
        places = ones[first[:, None] + np.arange(count)]
        numbers: Whole = np.diff(places, axis=1, prepend=self._at[:, None] - 1) - 1
        self._at = places[:, -1] + 1
        return numbers

    def fields(self, widths: Whole) -> Whole:
        """The next numbers [S, k] of each payload, from `Fields` of these widths."""
        start, self._at = self._at, self._at + widths.sum(1)
        if bool((self._at > self._ends).any()):
            raise CodecError("a payload ends before the numbers that it was to hold")
        numbers = np.zeros(widths.size, np.int64)
        for bit, which, place in _bits_of(widths, start):
            numbers[which] |= self._bits[place].astype(np.int64) << bit
        return numbers.reshape(widths.shape)

    def finish(self) -> None:
        """Refuse payloads that go on after what they were to hold."""
        if bool((self._ends - self._at >= 8).any()):
            raise CodecError("a payload goes on after the numbers that it was to hold")
        left = self._at[:, None] + np.arange(7)
        if bool(self._bits[left[left < self._ends[:, None]]].any()):
            raise CodecError("a payload does not end in zeros")


def lots(rows: int, numbers: int) -> list[slice]:
    """Rows of so many numbers, few enough at a time for the memory."""
    few = max(1, _AT_ONCE // max(1, numbers))
    return [slice(start, min(rows, start + few)) for start in range(0, rows, few)]


def _bits_of(widths: Whole, start: Whole) -> Iterator[tuple[int, Whole, Whole]]:
    """Bit by bit: which of the fields [S * k] have it, and where it stands."""
    first = widths.cumsum(1)
    first += start[:, None] - widths
    which = np.flatnonzero(widths)
    place, widths = first.ravel()[which], widths.ravel()[which]
    bit = 0
    while len(which):
        yield bit, which, place
        bit += 1
        longer = np.flatnonzero(widths > bit)
        which, place, widths = which[longer], place[longer] + 1, widths[longer]
