"""Sparse ternary compression: where the largest entries of an update lie, their signs, and one size for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from descant.codecs.base import Leaf
from descant.codecs.bits import Fields, Reader, write
from descant.codecs.feedback import Feedback, check_finite, count
from descant.codecs.raw import peaks
from descant.codecs.sparse import largest, pack_values, unpack_values
from descant.codecs.universal import read_rice, rice
from descant.errors import CodecError, require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class SparseTernary(Feedback):
    """Sparse ternary compression, STC (Sattler et al., 2019), with error feedback.

    The share `share` of an update's entries that are largest, at least one, become mu sign(p_i) with mu the mean of
    their sizes, and the others zero. What that leaves out stays with the sender and is added to its next update,
    unless `feedback` is off. mu keeps its type; an entry takes its sign, a bit, and its index in Rice's code, about
    log2(1 / share) + 1.5 bits. The paper uses it both ways: as `codec` and as `downlink`. (A zero has a sign bit,
    too: where fewer entries differ from zero than are sent, some zeros arrive as mu, and the sender owes that back.
    In the paper they stay zero.)
    """

    name: ClassVar[str] = "stc"

    share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")

    def compress(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        check_finite(leaf, wanted)
        n = wanted.shape[1]
        index = largest(wanted, count(self.share, n))
        peak, unit = peaks(wanted.gather(1, index))  # so that no sum overflows
        mu = peak * unit.abs().mean(1, keepdim=True) if n else wanted
        negative = wanted.gather(1, index) < 0
        bits = Fields(negative.cpu().numpy().astype(np.int64), np.ones(index.shape, np.int64))
        coded = write(*rice(index.cpu().numpy(), n), bits)
        payloads = [size + code for size, code in zip(pack_values(mu), coded, strict=True)]
        return payloads, wanted.scatter_add(1, index, torch.where(negative, mu, -mu))

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, size = like.shape[1], like.dtype.itemsize if like.shape[1] else 0
        k = count(self.share, n)
        if any(len(payload) < size for payload in payloads):
            raise CodecError(f"a payload is too short for a value of {size} bytes")
        mu = unpack_values([payload[:size] for payload in payloads], 1 if n else 0, like)
        if not bool(((mu >= 0) & mu.isfinite()).all()):
            raise CodecError("the size of a message's entries must be finite, and zero or more")
        bits = Reader([payload[size:] for payload in payloads])
        index = torch.from_numpy(read_rice(bits, k, n)).to(like.device)
        negative = torch.from_numpy(bits.fields(np.ones(index.shape, np.int64))).to(like.device, torch.bool)
        bits.finish()
        return copies, torch.zeros_like(like).scatter(1, index, torch.where(negative, -mu, mu))
