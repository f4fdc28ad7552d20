"""QSGD: every number as one of few levels, rounded at random so that the mean is right."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from descant.codecs.base import Leaf, UpdateCodec, blocks
from descant.codecs.bits import Fields, Reader, lots, write
from descant.codecs.raw import wide
from descant.codecs.sparse import pack_values, unpack_values
from descant.codecs.universal import elias, read_elias
from descant.errors import CodecError, require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class QSGD(UpdateCodec):
    """QSGD (Alistarh et al., 2017), section 3.1: Q(v_i) = ||v|| sign(v_i) l_i / s.

    l_i is s |v_i| / ||v|| rounded to a whole number, up or down at random, so that the mean of Q(v) is v. `levels`
    is s. An update is cut into buckets of `bucket` numbers, each with a norm of its own. `norm` says which: the
    largest size ("max", as in the paper's experiments) or the length ("l2", as in its theorems).

    A norm takes four bytes (of doubles, eight); l_i takes 2 floor(log2(l_i + 1)) + 1 bits, and one more for its
    sign unless it is zero. That is Elias's gamma code: below 127 levels it is no longer than the recursive code of
    the paper. Nothing is remembered. A message that is not finite is refused.

    With "l2", methods that send what changed since the server read them last (FLAME, FedADMM, MOCHA, L2SGD, Fed+ of
    all parties) need more than sqrt(n) / 2 levels for buckets of n numbers: with fewer, the error of a reading
    can grow from round to round. With "max" it is at most 1/s of what it was, in every entry.
    """

    name: ClassVar[str] = "qsgd"

    levels: int = 7
    bucket: int = 512
    norm: Literal["max", "l2"] = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        # Single precision knows all whole numbers up to there.
        require(self, "levels", 1 <= self.levels < 2**24, "at least 1 and below 2^24")
        require(self, "bucket", self.bucket >= 1, "at least 1")

    def unsettled(self, n: int) -> str | None:
        """With the largest size as the norm, no error is above 1/s of the largest before: that always settles.

        With the length, the mean of ||Q(v) - v||^2 is at most n / (4 s^2) ||v||^2, since rounding a number up or
        down has a variance of at most 1/4. That is below ||v||^2 where s > sqrt(n) / 2. With fewer levels, it is
        (sqrt(n) / s - 1) ||v||^2 for entries that are alike, which is ||v||^2 or more.
        """
        bucket = self._bucket(n)
        if self.norm == "max" or 4 * self.levels**2 > bucket:
            return None
        return (
            f"with norm: l2, buckets of n numbers need more than sqrt(n) / 2 levels, and n is {bucket}; use norm: "
            f"max, {isqrt(bucket // 4) + 1} levels or more, or buckets of {4 * self.levels**2 - 1} numbers or fewer"
        )

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        payloads: list[bytes] = []
        for lot in lots(*update.shape):
            norms, levels = self._quantised(leaf.only(lot), update[lot])
            signed = levels.cpu().numpy()
            sign = Fields((signed < 0).astype(np.int64), (signed != 0).astype(np.int64))
            coded = write(*elias(np.abs(signed) + 1), sign)
            payloads += [norm + code for norm, code in zip(pack_values(norms), coded, strict=True)]
        return memory, payloads

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, updates = like.shape[1], torch.zeros_like(like)
        kind = wide(like[:0])
        size = self._buckets(n) * kind.dtype.itemsize
        for lot in lots(*like.shape):
            bits = Reader([payload[size:] for payload in payloads[lot]])
            levels = read_elias(bits, n, self.levels + 1) - 1
            negative = bits.fields((levels > 0).astype(np.int64))
            bits.finish()
            norms = unpack_values([payload[:size] for payload in payloads[lot]], self._buckets(n), kind)
            if not bool(((norms >= 0) & norms.isfinite()).all()):
                raise CodecError("the norms of a message must be finite, and zero or more")
            signed = torch.from_numpy(np.where(negative, -levels, levels)).to(like.device)
            updates[lot] = (signed.to(kind.dtype) / self.levels * self._each(norms, n)).to(like.dtype)
        return copies, updates

    def _quantised(self, leaf: Leaf, update: Tensor) -> tuple[Tensor, Tensor]:
        """The norms [S, B] of the buckets, and the levels [S, n] with their signs."""
        S, n = update.shape
        bucket = self._bucket(n)
        norms, levels = [wide(update[:, :0])], [torch.zeros(S, 0, dtype=torch.int64, device=update.device)]
        for some in blocks(n, bucket * max(1, 2**16 // bucket)):  # of whole buckets
            size = some.stop - some.start
            v = functional.pad(wide(update[:, some]), (0, -size % bucket)).view(S, -1, bucket)
            norm = self._norm(v)
            if not bool(norm.isfinite().all()):
                raise CodecError(f"the update of '{leaf.name}' is not finite, or its norm is not")
            exact = (v.abs() / torch.where(norm > 0, norm, 1.0) * self.levels).flatten(1)[:, :size]
            low = exact.floor()
            level = (low + (exact - low > leaf.uniform("qsgd", some))).clamp(max=self.levels).long()
            norms.append(norm[..., 0])
            levels.append(torch.where(update[:, some] < 0, -level, level))
        return torch.cat(norms, 1), torch.cat(levels, 1)

    def _norm(self, v: Tensor) -> Tensor:
        """The norm [S, B, 1] of every bucket [S, B, bucket]."""
        peak = v.abs().amax(2, keepdim=True)
        if self.norm == "max":
            return peak
        length: Tensor = torch.linalg.vector_norm(v / torch.where(peak == 0, 1.0, peak), dim=2, keepdim=True)
        return peak * length  # so that no square overflows

    def _bucket(self, n: int) -> int:
        """The numbers of a bucket of n numbers."""
        return min(self.bucket, max(1, n))

    def _buckets(self, n: int) -> int:
        return -(-n // self._bucket(n))

    def _each(self, norms: Tensor, n: int) -> Tensor:
        """The norm [S, n] of every number's bucket."""
        return norms.repeat_interleave(self._bucket(n), 1)[:, :n]
