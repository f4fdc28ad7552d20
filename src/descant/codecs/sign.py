"""The signs of an update, with one scale and error feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from descant.codecs.base import Leaf
from descant.codecs.feedback import Feedback
from descant.codecs.raw import check_lengths, peaks
from descant.codecs.sparse import pack_values, unpack_values
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Sign(Feedback):
    """signSGD with error feedback (Karimireddy et al., 2019), Algorithm 1: ||p||_1 / n sign(p), a bit a number.

    p is the update and what the client still owes of earlier ones. An entry that is zero counts as positive.
    With `feedback` off the rest is forgotten: that is scaled signSGD, which need not converge (section 3).
    """

    name: ClassVar[str] = "sign"

    def compress(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        peak, unit = peaks(wanted)
        scale = peak * unit.abs().mean(1, keepdim=True)  # ||p||_1 / n, [S, 1]
        negative = wanted < 0
        packed = np.packbits(negative.cpu().numpy(), axis=1, bitorder="little")
        payloads = [s + row.tobytes() for s, row in zip(pack_values(scale), packed, strict=True)]
        return (payloads if wanted.shape[1] else [b""] * len(wanted)), wanted - torch.where(negative, -scale, scale)

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, size = like.shape[1], like.dtype.itemsize
        check_lengths(payloads, size + -(-n // 8) if n else 0)
        if not like.numel():
            return copies, torch.zeros_like(like)
        scale = unpack_values([payload[:size] for payload in payloads], 1, like)
        packed = np.frombuffer(b"".join(payload[size:] for payload in payloads), np.uint8).reshape(len(like), -1)
        bits = np.unpackbits(packed, axis=1, count=n, bitorder="little")
        negative = torch.from_numpy(bits).to(like.device, torch.bool)
        return copies, torch.where(negative, -scale, scale)
