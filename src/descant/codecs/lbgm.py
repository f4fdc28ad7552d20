"""Look-back gradient multiplier: one number where an update repeats an old one's direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf, UpdateCodec
from descant.codecs.raw import flat, peaks, wide
from descant.codecs.sparse import pack_values, unpack_values
from descant.errors import CodecError, require
from descant.trees import Tree

_MULTIPLE, _WHOLE = b"\0", b"\1"


@dataclass(frozen=True, kw_only=True)
class LBGM(UpdateCodec):
    """Look-back gradient multiplier, LBGM (Azam et al., 2022), Algorithm 1, with an update g for a gradient.

    Both ends keep the look-back l, the last update that a client sent whole. Where sin^2 of the angle between g and
    l is at most `delta`, the client sends rho = <g, l> / ||l||^2, one number, and the server takes rho l, which is
    the projection of g onto l. Otherwise it sends g, which is the new look-back. A byte before says which it is.
    """

    name: ClassVar[str] = "lbgm"

    delta: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "delta", 0 <= self.delta <= 1, "at least 0 and at most 1")

    def memory(self, like: Tree) -> Tree:
        return {f"{name}.whole": torch.zeros_like(leaf) for name, leaf in like.items()}

    def copies(self, like: Tree) -> Tree:
        return self.memory(like)

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        whole = flat(memory["whole"])
        rho, again = self._again(update, whole)
        both = zip(again[:, 0].tolist(), pack_values(rho), pack_values(update), strict=True)
        payloads = [_MULTIPLE + multiple if short else _WHOLE + new for short, multiple, new in both]
        return {"whole": torch.where(again, whole, update).view(memory["whole"].shape)}, payloads

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, one, whole = like.shape[1], like.dtype.itemsize, flat(copies["whole"])
        for payload in payloads:
            if len(payload) != 1 + one * {_MULTIPLE: 1, _WHOLE: n}.get(payload[:1], -1):
                raise CodecError(f"a payload of {len(payload)} bytes is neither a multiple nor {n} numbers")
        short = [payload[:1] == _MULTIPLE for payload in payloads]
        again = torch.tensor(short, dtype=torch.bool, device=like.device)[:, None]
        # A multiple stands in the first place of a row of its own; a whole update fills it.
        sent = unpack_values([payload[1:].ljust(n * one, b"\0") for payload in payloads], n, like)
        updates = torch.where(again, sent[:, :1] * whole, sent)
        return {"whole": torch.where(again, whole, sent).view(copies["whole"].shape)}, updates

    def _again(self, update: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """rho [S, 1] of each update [S, n], and whether it is to be sent in the update's place [S, 1]."""
        (length, g), (reach, back) = peaks(wide(update)), peaks(wide(whole))  # so that no square overflows
        along, gg, ll = ((a * b).sum(1, keepdim=True) for a, b in ((g, back), (g, g), (back, back)))
        rho = (along / ll * (length / reach)).to(update.dtype)
        close = along.square() >= (1 - self.delta) * gg * ll  # cos^2 >= 1 - delta
        return rho, close & (ll > 0) & rho.isfinite() & (update.shape[1] > 1)  # one number is its own multiple
