"""Numbers in few bits: rounded to an even grid, at random or to the nearest point, and packed into bytes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Rounding(NamedTuple):
    """How coarsely numbers travel: each in so many `bits`, as a point of an even grid from -span to span.

    Without a `span`, it is the largest size among the numbers, and travels with them. Numbers are rounded at
    random, so that the mean is right, or to the `nearest` point of the grid that fits them best (`fitting`). With
    `rotate` they are turned before that, and back after it: see `descant.rotation`, and `unbiased`.
    """

    bits: int
    span: float | None = None
    nearest: bool = False
    rotate: bool = False


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
    """The points of each row's grid that are nearest to v [S, n]. That of a negative `span` [S, 1] holds zero."""
    last = _last(span, bits)
    exact = v.double() / torch.where(span == 0, 1.0, span.abs())
    return exact.clamp_(-1, 1).mul_(last / 2).add_(last / 2 - 0.5).ceil_().long()


def fitting(v: Tensor, bits: int) -> Tensor:
    """The span [S, 1] of each row's grid that leaves the least error ||v - nearest(v)||, of a few whose size is
    from mean |v| to max |v|: with 2^bits points or, where it is negative, with one less and zero among them.

    That error is below ||v||: with the span mean |v|, points -span and span alone would leave
    sum_i (|v_i| - mean |v|)^2 = ||v||^2 - n (mean |v|)^2, and the points between them are never farther. Where many
    numbers are zero, points on both sides of it would add the same to all messages; a point there adds nothing.
    """
    peak, unit = _unit(v)
    sizes = unit.abs_()
    mean = sizes.mean(1, keepdim=True) if v.shape[1] else sizes.new_zeros(len(v), 1)
    best, least = mean, torch.full_like(mean, torch.inf)
    for i in range(_TRIED if bits > 1 else 0):  # of two points, those at the mean are the best
        size = mean ** (1 - i / (_TRIED - 1))
        for span, zero in ((size, False), (-size, True)):
            error = _missed(sizes, size, bits, zero=zero)
            best, least = torch.where(error < least, span, best), torch.minimum(error, least)
    return (best * peak.double()).to(v.dtype)


def _missed(sizes: Tensor, span: Tensor, bits: int, *, zero: bool) -> Tensor:
    """The squared error [S, 1] of rows whose numbers have these sizes [S, n], each at the nearest point of a grid.

    A grid has the same points on both sides of zero: 0, 1, ... steps away or, with no `zero`, 1/2, 3/2, ... steps.
    """
    step = 2 * span / _last(-span if zero else span, bits)
    off = sizes / torch.where(step > 0, step, 1.0)
    if not zero:
        off -= 0.5
    off -= off.round().clamp_(max=_half(bits) if zero else 2 ** (bits - 1) - 1)
    left: Tensor = torch.linalg.vector_norm(off, dim=1, keepdim=True) * step
    return left.square()


def unbiased(v: Tensor, points: Tensor, span: Tensor, bits: int) -> Tensor:
    """The `span` [S, 1] of each row's grid, made longer, so that <y, v> = ||v||^2 for y, the `points` nearest to v.

    With a span that is `fitting`, y is too short. With this one, the mean of y over all rotations of v, each turned
    back, is v itself (Vargaftik et al., 2021, DRIVE, for one bit; 2022, EDEN). Where y is zero, the span stays.
    """
    peak, unit = _unit(v)
    at = span.double() / torch.where(peak > 0, peak, 1.0)
    inner = (unit * on_grid(points, at, bits)).sum(1, keepdim=True)
    return (span.double() * torch.where(inner > 0, unit.square().sum(1, keepdim=True) / inner, 1.0)).to(span.dtype)


def _unit(v: Tensor) -> tuple[Tensor, Tensor]:
    """The largest size [S, 1] in each row, and the rows over it: all their squares are numbers that can be told."""
    peak = v.abs().amax(1, keepdim=True) if v.shape[1] else v.new_zeros(len(v), 1)
    return peak, v.double() / torch.where(peak > 0, peak, 1.0)


def on_grid(points: Tensor, span: Tensor, bits: int) -> Tensor:
    """The numbers that points [S, n] of the grid stand for, in the type of the `span` [S, 1]."""
    last = _last(span, bits)
    return points.double().mul_(2).sub_(last).div_(last).mul_(span.abs()).to(span.dtype)


def _last(span: Tensor, bits: int) -> Tensor:
    """The last point [S, 1] of each row's grid, from 0 on: one less with a negative span, whose middle is zero."""
    return torch.where(span < 0, 2.0 * _half(bits), 2.0**bits - 1).double()


def _half(bits: int) -> int:
    """How many points a grid that holds zero has on each side of it."""
    return max(1, (1 << (bits - 1)) - 1)


def packed(points: Tensor, bits: int) -> Tensor:
    """Points [S, n] as bytes (uint8), the lowest bit of the first one first; the last byte is filled with zeros."""
    if 8 % bits == 0:  # no point lies in two bytes
        each = 8 // bits
        flat = functional.pad(points.to(torch.uint8), (0, -points.shape[-1] % each))
        return _joined(flat.view(*points.shape[:-1], length(points.shape[-1], bits), each), bits)
    apart = (points[..., None] >> torch.arange(bits, device=points.device)).bitwise_and_(1).to(torch.uint8)
    flat = apart.flatten(-2)
    flat = functional.pad(flat, (0, -flat.shape[-1] % 8))
    return _joined(flat.view(*points.shape[:-1], length(points.shape[-1], bits), 8), 1)


def _joined(parts: Tensor, bits: int) -> Tensor:
    """Bytes of parts [..., 8 / bits], the first one lowest."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=parts.device)
    return (parts << shifts).sum(-1, dtype=torch.uint8)


def unpacked(octets: Tensor, bits: int, n: int) -> Tensor:
    """The n points of each row of bytes [S, length(n, bits)]."""
    if 8 % bits == 0:
        return _parts(octets, bits)[..., :n].long()
    each = _parts(octets, 1)[..., : n * bits].reshape(*octets.shape[:-1], n, bits).long()
    return (each << torch.arange(bits, device=octets.device)).sum(-1)


def _parts(octets: Tensor, bits: int) -> Tensor:
    """What bytes [S, length] hold, so many bits a part, the lowest ones first: [S, length * 8 / bits]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=octets.device)
    return (octets[..., None] >> shifts).bitwise_and_((1 << bits) - 1).flatten(-2)


def length(n: int, bits: int) -> int:
    """The bytes of n packed points."""
    return -(-n * bits // 8)
