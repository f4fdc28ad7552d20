"""Every number in the same few bits, rounded at random so that the mean is right, or to the nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf, UpdateCodec, blocks
from descant.codecs.bits import lots
from descant.codecs.feedback import check_finite
from descant.codecs.raw import peaks, raw, rows_of, wide
from descant.errors import CodecError, require
from descant.mail import Form
from descant.rotation import rotated, rotated_back
from descant.rounding import fitting, length, nearest, on_grid, packed, rounded, unbiased, unpacked
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Uniform(UpdateCodec):
    """Uniform quantisation: every number in `bits` bits, all messages of one length.

    A number is rounded to one of 2^bits evenly spaced ones from -s to s, up or down at random, so that the mean of
    what arrives is what was sent. s is the largest size in the update, and takes four bytes (of doubles, eight); or
    it is `span`, which both ends know: then nothing but the numbers travels, and larger ones become s. Nothing is
    remembered. A message that is not finite is refused.

    With `nearest`, a number goes to the nearest of them, and s is chosen so that the error is small: it is always
    smaller than the update, and much smaller than with random rounding where bits are few. Where many numbers are
    zero, one number less is used, and zero is among them; the sign of s tells. What arrives is a little too short
    on average, and the mean of many messages keeps some of the error.

    With `rotate`, an update is turned by a random rotation before it is rounded, another one in each round, and
    back when it is read. Its numbers are nearly normal then, whatever they were. With `nearest`, s is made longer,
    so that the mean of what arrives over rotations is what was sent (Vargaftik et al. 2021, DRIVE, for one bit;
    2022, EDEN). Rotations do not change a `span` that was given.
    """

    name: ClassVar[str] = "uniform"

    bits: int = 8
    span: float | None = None
    nearest: bool = False
    rotate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "bits", 1 <= self.bits <= 16, "from 1 to 16")
        require(self, "span", self.span is None or self.span > 0, "a positive number, or nothing")

    def unsettled(self, n: int) -> str | None:
        """A number that is rounded at random errs by less than a step: 2 s / (2^bits - 1) with s the largest size,
        which is below s from two bits on. With a `span` that is given, an error is bounded by it, and never grows.

        A rotation anew in each round spreads the errors that are left, so that some are large again: s^2 is about
        2 log(n) times their mean square, of which the largest share that can be left is 2 log(n) / (2^bits - 1)^2.
        From three bits on that is below 1 for all n up to e^24.
        """
        if self.nearest or self.span is not None or n < 2 or self.bits > (2 if self.rotate else 1):
            return None
        if self.bits == 2:
            return "where rotated numbers are rounded to four points at random; use nearest: true, or three bits"
        return "of two points at random, one may be twice the largest number away; use nearest: true, or two bits"

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        check_finite(leaf, update)
        payloads: list[bytes] = []
        for lot in lots(*update.shape):
            mine, rows = leaf.only(lot), wide(update[lot])
            if self.rotate:
                rows = rotated(rows, self._key(leaf))
            span = self._span(rows)
            points = [torch.zeros(len(rows), 0, dtype=torch.int64, device=rows.device)]
            for some in blocks(rows.shape[1]):
                if self.nearest:
                    points.append(nearest(rows[:, some], span, self.bits))
                else:
                    points.append(rounded(rows[:, some], span, self.bits, mine.uniform("uniform", some)))
            every = torch.cat(points, 1)
            parts = {"points": packed(every, self.bits)}
            if self.rotate and self.nearest and self.span is None:
                span = unbiased(rows, every, span, self.bits)
            payloads += raw(parts if self.span is not None else {"span": span} | parts, len(rows))
        return memory, payloads

    def _key(self, leaf: Leaf) -> Tensor:
        """What the rotation of a leaf follows from: the same for all senders of a round."""
        return leaf.common_bits("rotate", slice(0, 1))[0]

    def _span(self, rows: Tensor) -> Tensor:
        """The span [S, 1] of each row's grid."""
        if self.span is not None:
            return torch.full_like(rows[:, :1], self.span)
        return fitting(rows, self.bits) if self.nearest else peaks(rows)[0]

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, kind, updates = like.shape[1], wide(like[:0]), torch.zeros_like(like)
        form = Form(("points",), ((length(n, self.bits),),), (torch.uint8,))
        if self.span is None:
            form = Form(("span", *form.names), ((1,), *form.shapes), (kind.dtype, *form.dtypes))
        for lot in lots(*like.shape):
            rows = rows_of(payloads[lot], form, like.device)
            span = rows.get("span", kind.new_full((1, 1), self.span or 0.0))
            if not bool(span.isfinite().all()) or (not self.nearest and bool((span < 0).any())):
                more = "" if self.nearest else ", and zero or more"
                raise CodecError(f"the span of a message must be finite{more}")
            read = on_grid(unpacked(rows["points"], self.bits, n), span, self.bits)
            if self.rotate:
                read = rotated_back(read, self._key(leaf))
            updates[lot] = read.to(like.dtype)
        return copies, updates
