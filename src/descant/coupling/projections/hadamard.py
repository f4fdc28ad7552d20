"""The subsampled randomised Hadamard transform."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.projections.base import Projection, Projector, Space, at_most
from descant.draws import stream
from descant.rotation import CHUNK, signs, transformed, walsh

_AT_ONCE = 2**20  # numbers that are transformed at once
_ON_GPU = 2**26  # the same on a GPU, which is idle with fewer


def chunk(d: int) -> int:
    """The length of a chunk: d rounded up to a power of two, if that is not too long."""
    return min(CHUNK, 1 << (d - 1).bit_length())


def _pieces(key: Tensor, clients: int, d: int, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Whole chunks: where they lie, their numbers [Q], and the signs of their coordinates."""
    length = chunk(d)
    size = length * max(1, _AT_ONCE // (length * max(1, clients)))
    for begin in range(0, d, size):
        end = min(begin + size, d)
        number = torch.arange(begin // length, -(-end // length), device=key.device)
        yield slice(begin, end), number, signs(key, begin, end).to(dtype)


def _rows(like: Tensor, d: int) -> Iterator[slice]:
    """So many clients that their transforms of all of H_n fit."""
    most = _ON_GPU if like.is_cuda else _AT_ONCE
    step = max(1, most >> (d - 1).bit_length())
    for begin in range(0, len(like), step):
        yield slice(begin, begin + step)


def _project_by_all(x: Tensor, key: Tensor, row: Tensor) -> Tensor:
    """Some rows of H_n D x / sqrt(d), by all of them."""
    c, sign = x.new_empty(len(x), len(row)), signs(key, 0, x.shape[1]).to(x.dtype) / x.shape[1] ** 0.5
    for some in _rows(x, x.shape[1]):
        whole = x.new_zeros(len(x[some]), 1 << (x.shape[1] - 1).bit_length())
        whole[:, : x.shape[1]] = x[some] * sign
        c[some] = transformed(whole)[:, row]
    return c


def _lift_by_all(c: Tensor, key: Tensor, row: Tensor, d: int) -> Tensor:
    """D H_n c / sqrt(d) for c at some of the n places, which differ."""
    x, sign = c.new_empty(len(c), d), signs(key, 0, d).to(c.dtype) / d**0.5
    for some in _rows(c, d):
        y = c.new_zeros(len(c[some]), 1 << (d - 1).bit_length())
        y[:, row] = c[some]
        x[some] = transformed(y)[:, :d] * sign
    return x


# Opaque to torch.compile, which would unroll the loop over pieces.
@torch.library.custom_op("descant::hadamard_project", mutates_args=())
def _project(x: Tensor, key: Tensor, among: Tensor, within: Tensor) -> Tensor:
    c, length = x.new_zeros(len(x), len(within)), chunk(x.shape[1])
    if len(within) > length:  # several rows have the same row of H_l: all of H_n is less work
        return _project_by_all(x, key, among * length + within)
    for columns, number, sign in _pieces(key, len(x), x.shape[1], x.dtype):
        whole = x.new_zeros(len(x), len(number) * length)
        whole[:, : len(sign)] = x[:, columns] * sign
        y = transformed(whole.view(len(x), len(number), length))[:, :, within]  # [K, Q, m]
        c += (y * walsh(among, number[:, None])).sum(1)
    c /= x.shape[1] ** 0.5
    return c


@_project.register_fake
def _(x: Tensor, key: Tensor, among: Tensor, within: Tensor) -> Tensor:
    return x.new_empty(len(x), len(within))


@torch.library.custom_op("descant::hadamard_lift", mutates_args=())
def _lift(c: Tensor, key: Tensor, among: Tensor, within: Tensor, d: int) -> Tensor:
    x, length = c.new_empty(len(c), d), chunk(d)
    if len(within) > length:
        return _lift_by_all(c, key, among * length + within, d)
    for columns, number, sign in _pieces(key, len(c), d, c.dtype):
        y = c.new_zeros(len(c), len(number), length)
        values = c[:, None, :] * walsh(among, number[:, None])  # [K, Q, m]
        y.scatter_(2, within.expand(*y.shape[:2], -1), values)  # places differ
        x[:, columns] = transformed(y).flatten(1)[:, : len(sign)] * sign
    x /= d**0.5
    return x


@_lift.register_fake
def _(c: Tensor, key: Tensor, among: Tensor, within: Tensor, d: int) -> Tensor:
    return c.new_empty(len(c), d)


@dataclass(frozen=True)
class Transform(Projector):
    """P = R H D / sqrt(d): random signs D, Sylvester's Hadamard matrix H_n of d rounded up, and some rows R of it.

    With chunks of length l, H_n is the Kronecker product of H_(n/l) and H_l. Row (i, j) of H_n D x is then
    sum_q H_(n/l)[i, q] (H_l D_q x_q)[j] over the chunks x_q: for few rows, only H_l is applied to all of x.
    """

    key: Tensor  # []
    among: Tensor  # [dim] i, the row of H_(n/l)
    within: Tensor  # [dim] j, the row of H_l

    def project(self, x: Tensor) -> Tensor:
        c: Tensor = _project(x, self.key, self.among, self.within)
        return c

    def lift(self, c: Tensor) -> Tensor:
        x: Tensor = _lift(c, self.key, self.among, self.within, self.d)
        return x


@dataclass(frozen=True, kw_only=True)
class Hadamard(Projection):
    """The subsampled randomised Hadamard transform (Ailon and Chazelle, 2009; Tropp, 2011): signs, H, some rows.

    Entries are +1/sqrt(d) or -1/sqrt(d); where d is a power of two, rows are orthonormal. It takes O(d log d), and
    stores 2 `dim` numbers. Rows differ, and their numbers modulo 4,096 are spread as evenly as can be.
    """

    name: ClassVar[str] = "hadamard"

    def dim(self, m: int, d: int) -> int:
        return at_most(m, d)

    def make(self, seed: int, m: int, space: Space) -> Projector:
        length = chunk(space.d)
        chunks = (1 << (space.d - 1).bit_length()) // length
        order = stream(space.key(seed, "hadamard within"), torch.arange(length, device=space.device)).argsort()
        turn = torch.arange(m, device=space.device)
        within = order[turn % length]
        first = stream(space.key(seed, "hadamard among"), within)
        among = (first + turn // length) & (chunks - 1)  # other ones for the same row within, since m <= n
        return Transform(m, space.d, space.key(seed, "hadamard signs"), among, within)
