"""Codes of whole numbers: Elias's for small ones, Rice's for rising indices."""

from __future__ import annotations

import numpy as np

from descant.codecs.bits import Fields, Reader, Unary, Whole
from descant.errors import CodecError


def elias(numbers: Whole) -> tuple[Unary, Fields]:
    """Elias's gamma code (1975) of numbers n >= 1 [S, k], in 2 floor(log2 n) + 1 bits each.

    >>> from descant.codecs.bits import write
    >>> len(write(*elias(np.array([[1, 1, 2, 5]])))[0])  # 1 + 1 + 3 + 5 bits
    2
    """
    width = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1  # floor(log2 n)
    return Unary(width), Fields(numbers - (1 << width), width)


def read_elias(bits: Reader, count: int, largest: int) -> Whole:
    """The next `count` numbers of each payload [S, count], none above `largest`."""
    width = bits.unary(count)
    if width.max(initial=0) >= largest.bit_length():
        raise CodecError(f"a number of a message must be at most {largest}")
    numbers: Whole = bits.fields(width) + (1 << width)
    if numbers.max(initial=0) > largest:
        raise CodecError(f"a number of a message must be at most {largest}")
    return numbers


def rice(indices: Whole, n: int) -> tuple[Unary, Fields]:
    """Rising indices below n [S, k], as the Rice code (1979) of the gaps between them.

    A gap is divided by the power of two below n / k: the quotient is unary, the rest a field. Where the indices are
    spread evenly, an index takes about log2(n / k) + 1.5 bits; wherever they lie, at most log2(n / k) + 3.
    """
    gaps = np.diff(indices, axis=1, prepend=-1) - 1
    width = _width(n, indices.shape[1])
    return Unary(gaps >> width), Fields(gaps & ((1 << width) - 1), np.broadcast_to(np.int64(width), gaps.shape))


def read_rice(bits: Reader, count: int, n: int) -> Whole:
    """The next `count` rising indices below n of each payload [S, count]."""
    width = _width(n, count)
    quotients = bits.unary(count)
    rests = bits.fields(np.broadcast_to(np.int64(width), quotients.shape))
    if quotients.max(initial=0) <= n >> width:
        indices: Whole = ((quotients << width) + rests + 1).cumsum(1) - 1
        if indices.max(initial=-1) < n:
            return indices
    raise CodecError(f"the indices of a message must lie below {n}")


def _width(n: int, k: int) -> int:
    """The largest power of two that is at most n / k."""
    return max(0, (n // max(1, k)).bit_length() - 1)
