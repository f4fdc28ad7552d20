"""Deep gradient compression: few entries, with momentum that waits for its turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf
from descant.codecs.feedback import MomentumFeedback, count
from descant.codecs.raw import peaks
from descant.codecs.sparse import largest, pack_entries, unpack_entries
from descant.errors import require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class DGC(MomentumFeedback):
    """Deep gradient compression, DGC (Lin et al., 2018), section 3, with an update in the place of a gradient.

    A client gathers momentum, u <- beta u + update and v <- v + u. The share `share` of the entries of v that are
    largest is sent, at least one, as values and coded indices, and cleared from u and v. An entry that waits long
    arrives up to 1 / (1 - beta) times as large, as with momentum; `beta` = 0 is top-k.

    `warmup` is the number of rounds before the share is reached. Until then it falls exponentially: to 0.001 in
    four rounds by 25, 6.3, 1.6 and 0.4 % (section 3.3). `clip` scales a longer update down to that norm before it
    is gathered (section 3.2); for the mean of N updates the paper's threshold is clip / sqrt(N). `by_layer` takes
    the share of every tensor of the model, as the paper does, where an update is as long as the model; otherwise it
    is that of the whole vector.
    """

    name: ClassVar[str] = "dgc"

    share: float = 0.001
    warmup: int = 4
    clip: float | None = None
    by_layer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")
        require(self, "warmup", self.warmup >= 0, "zero or more")
        require(self, "clip", self.clip is None or self.clip > 0, "above 0, or nothing")

    def share_in(self, round: int) -> float:
        """The share of the entries that is sent in a round, counted from 1."""
        return float(self.share ** min(1.0, round / (self.warmup + 1)))

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        if self.clip is not None:
            peak, unit = peaks(update)
            norm = torch.linalg.vector_norm(unit, dim=1, keepdim=True)  # of the update over its peak
            limit = self.clip / norm.clamp(min=1.0)
            update = torch.where(peak > limit, unit * limit, update)
        return super().pack(leaf, memory, update)

    def choose(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        parts, start = [], 0
        for n, k in self._parts(leaf, wanted.shape[1]):
            parts.append(start + largest(wanted[:, start : start + n], k))
            start += n
        index = torch.cat(parts, 1)
        return pack_entries(index, wanted.gather(1, index), wanted.shape[1]), index

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        k = sum(k for _, k in self._parts(leaf, like.shape[1]))
        return copies, unpack_entries(payloads, k, like)

    def _parts(self, leaf: Leaf, n: int) -> list[tuple[int, int]]:
        """The lengths of the parts of a vector of n entries, and how many are sent of each."""
        layout, share = leaf.ctx.layout, self.share_in(leaf.ctx.round)
        sizes = layout.sizes if self.by_layer and n == layout.dim else [n]
        return [(size, count(share, size)) for size in sizes]
