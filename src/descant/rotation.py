"""Hadamard's matrix, random signs, and rotations made of both: they spread every number over all places."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.draws import stream

CHUNK = 2**12  # numbers that are transformed together, as a matrix of 64 x 64


def walsh(row: Tensor, column: Tensor) -> Tensor:
    """Entries of Sylvester's Hadamard matrix, as int64: -1 where row & column has an odd number of bits, else 1."""
    odd = row & column
    for shift in (32, 16, 8, 4, 2, 1):
        odd ^= odd >> shift
    return 1 - 2 * (odd & 1)


def transformed(x: Tensor) -> Tensor:
    """H x along the last axis, of 2^e numbers, by smaller ones: for the last bits of a place, then the others."""
    length = x.shape[-1]
    low = 1 << (min(length, CHUNK).bit_length() // 2)  # of a chunk half of the bits, rounded up
    number = torch.arange(max(low, min(length // low, 64)), device=x.device)
    H = walsh(number[:, None], number).to(x.dtype)
    y = x.reshape(*x.shape[:-1], length // low, low) @ H[:low, :low]
    while low < length:  # now the transform of every `low` numbers
        high = min(length // low, 64)
        y = H[:high, :high] @ y.reshape(*x.shape[:-1], length // (high * low), high, low)
        low *= high
    return y.reshape(x.shape)


def signs(key: Tensor, begin: int, end: int) -> Tensor:
    """Random signs of coordinates, as int64, from one that is a multiple of 64: a word makes 64 of them."""
    word = stream(key, torch.arange(begin // 64, -(-end // 64), device=key.device))
    bit = (word[:, None] >> torch.arange(64, device=key.device)) & 1
    return (1 - 2 * bit).flatten()[: end - begin]


def rotated(v: Tensor, key: Tensor) -> Tensor:
    """R v for rows v [S, n], with the rotation R = W_2 D_2 W_1 D_1 that follows from a `key`.

    D_1 and D_2 are random signs. W_1 is a Hadamard transform of the first numbers, as many as fill chunks of 2^e,
    and W_2 of as many of the last: together they reach all, and no number has to be added. A number of R v is a sum
    of up to thousands of others with random signs, and so nearly normal.
    """
    for window, sign in _turns(v, key):
        v = _within(v * sign, window)
    return v


def rotated_back(v: Tensor, key: Tensor) -> Tensor:
    """R' v, which is what `rotated` began with."""
    for window, sign in reversed(_turns(v, key)):
        v = _within(v, window) * sign
    return v


def _turns(v: Tensor, key: Tensor) -> list[tuple[slice, Tensor]]:
    """Which numbers are mixed, first and then, and the signs [n] of all."""
    n = v.shape[1]
    if not n:
        return []
    length = _length(n)
    some, words = n // length * length, -(-n // 64) * 64
    drawn = signs(key.to(v.device), 0, words + n).to(v.dtype)
    return [(slice(0, some), drawn[:n]), (slice(n - some, n), drawn[words:])]


def _length(n: int) -> int:
    """The length of a chunk: the largest power of two that n holds, if that is not too long."""
    return min(CHUNK, 1 << (n.bit_length() - 1))


def _within(v: Tensor, window: slice) -> Tensor:
    """Rows v [S, n] of which the numbers in a window are mixed."""
    return torch.cat([v[:, : window.start], _mixed(v[:, window]), v[:, window.stop :]], 1)


def _mixed(v: Tensor) -> Tensor:
    """W v for rows v [S, k l], the chunks of which have every k-th number: l of them each. W W = I."""
    length = _length(v.shape[1])
    apart = v.reshape(len(v), length, v.shape[1] // length).transpose(1, 2)  # [S, k, l]
    mixed: Tensor = transformed(apart) / length**0.5
    return mixed.transpose(1, 2).flatten(1)
