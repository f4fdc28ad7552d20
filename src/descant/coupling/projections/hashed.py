"""Sparse projections that are derived from a seed whenever they are used: a hash, and sparse signs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling.projections.base import Projection, Projector, Space, at_most, evenly
from descant.draws import stream
from descant.errors import SettingError, require

_HALF = 2**32 - 1


def _at_once(device: torch.device) -> int:
    """Coordinates that are hashed at once: few enough for a processor's cache, or many for a GPU."""
    return 2**16 if device.type == "cpu" else 2**22


def _slots(key: Tensor, m: int, groups: int, columns: Tensor) -> Iterator[Tensor]:
    """Where coordinates [C] go in each group of buckets: to bucket b as 2b, or as 2b + 1 with a minus.

    The m buckets are divided among the groups, and a coordinate has one in each, by half a word.
    """
    words, first = -(-groups // 2), 0
    word = stream(key, columns[:, None] * words + torch.arange(words, device=key.device))
    for half, size in zip(word.view(torch.int32).unbind(1), evenly(m, groups), strict=False):
        slots = half.long().bitwise_and_(_HALF).mul_(2 * size).bitwise_right_shift_(32)
        yield slots.add_(2 * first) if first else slots
        first += size


def _pieces(key: Tensor, m: int, groups: int, d: int) -> Iterator[tuple[slice, Tensor]]:
    """The slots of all coordinates, piece by piece, for one group after the other."""
    size = _at_once(key.device)
    for begin in range(0, d if m else 0, size):
        columns = torch.arange(begin, min(begin + size, d), device=key.device)
        for slots in _slots(key, m, groups, columns):
            yield slice(begin, begin + len(columns)), slots


# Opaque to torch.compile, which would unroll the loop over pieces, and add in no fixed order.
@torch.library.custom_op("descant::hash_project", mutates_args=())
def _project(x: Tensor, key: Tensor, m: int, groups: int) -> Tensor:
    sums = x.new_zeros(len(x), 2 * m)
    client = torch.arange(len(x), device=x.device)[:, None]
    for columns, slots in _pieces(key, m, groups, x.shape[1]):
        if x.device.type == "cpu":
            sums.scatter_add_(1, slots.expand(len(x), -1), x[:, columns])
        else:  # which sorts first, and adds in a fixed order
            sums.index_put_((client, slots), x[:, columns], accumulate=True)
    return sums[:, ::2] - sums[:, 1::2]


@_project.register_fake
def _(x: Tensor, key: Tensor, m: int, groups: int) -> Tensor:
    return x.new_empty(len(x), m)


@torch.library.custom_op("descant::hash_lift", mutates_args=())
def _lift(c: Tensor, key: Tensor, d: int, groups: int) -> Tensor:
    values, x = torch.stack([c, -c], 2).flatten(1), c.new_zeros(len(c), d)
    for columns, slots in _pieces(key, c.shape[1], groups, d):
        x[:, columns] += values.gather(1, slots.expand(len(c), -1))
    return x


@_lift.register_fake
def _(c: Tensor, key: Tensor, d: int, groups: int) -> Tensor:
    return c.new_empty(len(c), d)


@dataclass(frozen=True)
class Hashed(Projector):
    """Rows with entries +scale_b or -scale_b at the coordinates of bucket b."""

    groups: int
    key: Tensor  # []
    scale: Tensor  # [dim] over the square roots of the buckets' sizes; zero for an empty bucket

    def project(self, x: Tensor) -> Tensor:
        c: Tensor = _project(x, self.key, self.dim, self.groups)
        return c * self.scale

    def lift(self, c: Tensor) -> Tensor:
        x: Tensor = _lift(c * self.scale, self.key, self.d, self.groups)
        return x


def _hashed(key: Tensor, m: int, groups: int, space: Space) -> Projector:
    sizes = torch.zeros(m, dtype=torch.int64, device=space.device)
    for _, slots in _pieces(key, m, groups, space.d):
        sizes += torch.bincount(slots >> 1, minlength=m)
    scale = torch.where(sizes > 0, sizes.double().rsqrt(), 0.0)
    return Hashed(m, space.d, groups, key, scale.to(space.dtype))


@dataclass(frozen=True, kw_only=True)
class Hash(Projection):
    """Every coordinate goes to one of `dim` buckets, with a sign, over the square root of the bucket's size.

    Rows are orthonormal: P P' = I. It takes O(d), and stores `dim` numbers: buckets and signs follow from the seed
    whenever they are needed. The row of an empty bucket is zero, which is rare where d is many times `dim`.
    """

    name: ClassVar[str] = "hash"

    def dim(self, m: int, d: int) -> int:
        return at_most(m, d)

    def make(self, seed: int, m: int, space: Space) -> Projector:
        return _hashed(space.key(seed, self.name), m, 1, space)


@dataclass(frozen=True, kw_only=True)
class SparseSign(Projection):
    """Random signs, a few in each column, at random rows; each row scaled to unit L2 norm.

    `nonzeros` is how many a column has (Martinsson and Tropp, 2020, advise 8): one in each of as
    many groups of rows. One is `hash`. It takes O(`nonzeros` d), and stores `dim` numbers.
    """

    name: ClassVar[str] = "sparse-sign"

    nonzeros: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "nonzeros", self.nonzeros >= 1, "a positive number")

    def dim(self, m: int, d: int) -> int:
        if 0 < at_most(m, d) < self.nonzeros:
            why = f"it must be at most {m}, the dim of the subspace, which is the length of a column"
            raise SettingError(f"method.projection.nonzeros = {self.nonzeros}: {why}")
        return m

    def make(self, seed: int, m: int, space: Space) -> Projector:
        return _hashed(space.key(seed, Hash.name), m, self.nonzeros, space)
