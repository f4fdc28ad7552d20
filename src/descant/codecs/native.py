"""Numbers as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Codec


@dataclass(frozen=True, kw_only=True)
class Native(Codec):
    """Every leaf's numbers, one leaf after the other, as this machine lays them out: no header, no loss."""

    name: ClassVar[str] = "native"

    def encode(self, message: Mapping[str, Tensor]) -> bytes:
        return b"".join(_bytes(leaf) for leaf in message.values())

    def decode(self, payload: bytes, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if len(payload) != self.size(like):
            expected = self.size(like)
            raise ValueError(f"a payload of {len(payload)} bytes arrived where {expected} were expected")
        message, start = {}, 0
        for name, leaf in like.items():
            size = leaf.numel() * leaf.element_size()
            piece = bytearray(payload[start : start + size])
            values = torch.frombuffer(piece, dtype=leaf.dtype) if size else torch.empty(0, dtype=leaf.dtype)
            message[name] = values.view(leaf.shape)
            start += size
        return message

    def size(self, message: Mapping[str, Tensor]) -> int:
        return sum(leaf.numel() * leaf.element_size() for leaf in message.values())


def _bytes(leaf: Tensor) -> bytes:
    flat = leaf.detach().cpu().reshape(-1).contiguous()
    return flat.view(torch.uint8).numpy().tobytes()  # numpy has no bfloat16, but it has bytes
