"""Entries of an update at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf, blocks
from descant.codecs.bits import lots
from descant.codecs.feedback import Feedback, check_finite, count
from descant.codecs.sparse import pack_values, unpack_values
from descant.errors import require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class RandomK(Feedback):
    """The share `share` of an update's entries, at least one, drawn at random (Stich et al., 2018, section 2).

    Who and which round it is says which entries, other ones for each client: both ends draw them, and only the
    values travel. With error feedback they are added as they are, and the rest waits for its turn. With `feedback`
    off each is multiplied by n / k: what arrives has the update as its mean, and n / k - 1 times its squared norm
    as its variance.
    """

    name: ClassVar[str] = "random-k"

    share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")

    def compress(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        check_finite(leaf, wanted)
        index = self._drawn(leaf, wanted)
        return pack_values(wanted.gather(1, index)), wanted.scatter(1, index, 0.0)

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n, k = like.shape[1], count(self.share, like.shape[1])
        values = unpack_values(payloads, k, like)
        scaled = values if self.feedback or leaf.since_last or not k else values * (n / k)
        return copies, torch.zeros_like(like).scatter(1, self._drawn(leaf, like), scaled)

    def _drawn(self, leaf: Leaf, rows: Tensor) -> Tensor:
        """The indices [S, k] of the entries whose random numbers are least."""
        S, n = rows.shape
        index = torch.zeros(S, count(self.share, n), dtype=torch.int64, device=rows.device)
        for lot in lots(S, n) if n else ():
            drawn = torch.cat([leaf.only(lot).bits("random-k", some) for some in blocks(n)], 1).to(rows.device)
            index[lot] = drawn.topk(index.shape[1], largest=False).indices
        return index
