"""The largest entries of an update, with error feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.codecs.base import Leaf
from descant.codecs.feedback import Feedback, count
from descant.codecs.sparse import largest, pack_entries, unpack_entries
from descant.errors import require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class TopK(Feedback):
    """The share `share` of an update's entries that are largest, at least one, as indices and values.

    What is not sent stays with the client and is added to its next update (error feedback: Stich et al., 2018,
    Algorithm 1; Karimireddy et al., 2019), unless `feedback` is off. An index takes about log2(1 / share) + 1.5
    bits (Rice's code of the gaps between them); a value keeps its type.
    """

    name: ClassVar[str] = "top-k"

    share: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")

    def compress(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        n = wanted.shape[1]
        index = largest(wanted, count(self.share, n))
        return pack_entries(index, wanted.gather(1, index), n), wanted.scatter(1, index, 0.0)

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        return copies, unpack_entries(payloads, count(self.share, like.shape[1]), like)
