"""Numbers in few bits: rounded to an even grid, at random or to the nearest point, and packed into bytes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Rounding(NamedTuple):
    """How coarsely numbers travel: each in so many `bits`, as a point of an even grid from -span to span.

    Without a `span`, it is the largest size among the numbers, and travels with them. Numbers are rounded at
    random, so that the mean is right, or to the `nearest` point of the grid that fits them best.
    """

    bits: int
    span: float | None = None
    nearest: bool = False


_TRIED = 12  # spans


def rounded(v: Tensor, span: Tensor, bits: int, drawn: Tensor) -> Tensor:
    """The points of each row's grid, from 0 to 2^bits - 1, for v [S, n]: up or down as `drawn` in (0, 1) says.

    What lies beyond the `span` [S, 1] becomes its end. In float64: a number on the grid stays there.
    """
    last = (1 << bits) - 1
    exact = (v.double() / torch.where(span > 0, span, 1.0)).clamp(-1, 1).add(1).mul(last / 2)
    low = exact.floor()
    return (low + (exact - low > drawn)).clamp(max=last).long()


def nearest(v: Tensor, span: Tensor, bits: int) -> Tensor:
    """The points of each row's grid that are nearest to v [S, n]."""
    return rounded(v, span, bits, torch.full((), 0.5, dtype=torch.float64, device=v.device))


def fitting(v: Tensor, bits: int) -> Tensor:
    """The span [S, 1] of each row's grid that leaves the least error ||v - nearest(v)||, of a few from mean |v| to
    max |v|.

    That error is below ||v||: with the span mean |v|, points -span and span alone would leave
    sum_i (|v_i| - mean |v|)^2 = ||v||^2 - n (mean |v|)^2, and the points between them are never farther.
    """
    sizes = v.double().abs()
    mean, peak = sizes.mean(1, keepdim=True), sizes.amax(1, keepdim=True)
    best, least = mean.to(v.dtype), torch.full_like(mean, torch.inf)
    for i in range(_TRIED):
        t = i / (_TRIED - 1)
        span = (mean ** (1 - t) * peak**t).to(v.dtype)
        error = (on_grid(nearest(v, span, bits), span, bits).double() - v).square().sum(1, keepdim=True)
        best, least = torch.where(error < least, span, best), torch.minimum(error, least)
    return best


def on_grid(points: Tensor, span: Tensor, bits: int) -> Tensor:
    """The numbers that points [S, n] of the grid stand for, in the type of the `span` [S, 1]."""
    unit = points.double() * (2 / ((1 << bits) - 1)) - 1
    return (span.double() * unit).to(span.dtype)


def packed(points: Tensor, bits: int) -> Tensor:
    """Points [S, n] as bytes (uint8), the lowest bit of the first one first; the last byte is filled with zeros."""
    if bits == 8:  # a byte a point, without eight numbers for its bits
        return points.to(torch.uint8)
    each = (points[..., None] >> torch.arange(bits, device=points.device)).bitwise_and_(1).to(torch.uint8)
    flat = each.flatten(-2)
    flat = functional.pad(flat, (0, -flat.shape[-1] % 8)).view(
        *points.shape[:-1], length(points.shape[-1], bits), 8
    )
    return (flat << torch.arange(8, dtype=torch.uint8, device=points.device)).sum(-1, dtype=torch.uint8)


def unpacked(octets: Tensor, bits: int, n: int) -> Tensor:
    """The n points of each row of bytes [S, length(n, bits)]."""
    if bits == 8:
        return octets.long()
    flat = (octets[..., None] >> torch.arange(8, dtype=torch.uint8, device=octets.device)).bitwise_and_(1)
    each = flat.flatten(-2)[..., : n * bits].reshape(*octets.shape[:-1], n, bits).long()
    return (each << torch.arange(bits, device=octets.device)).sum(-1)


def length(n: int, bits: int) -> int:
    """The bytes of n packed points."""
    return -(-n * bits // 8)
