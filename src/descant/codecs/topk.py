"""The largest entries of an update, with error feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import UpdateCodec
from descant.codecs.raw import as_bytes, check_lengths, flat, rows_of
from descant.context import Context
from descant.errors import CodecError, require
from descant.mail import Form
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class TopK(UpdateCodec):
    """The share `share` of an update's entries that are largest, at least one, as indices and values.

    What is not sent stays with the client and is added to its next update (error feedback: Stich et al., 2018,
    Algorithm 1; Karimireddy et al., 2019), unless `feedback` is off. An index takes as few whole bytes as the
    update's length needs; a value keeps its type.
    """

    name: ClassVar[str] = "top-k"

    share: float = 0.01
    feedback: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")

    def entries(self, n: int) -> int:
        """How many of n entries are sent."""
        return max(1, round(self.share * n)) if n else 0

    def memory(self, like: Tree) -> Tree:
        return {f"{name}.residual": torch.zeros_like(leaf) for name, leaf in like.items()} if self.feedback else {}

    def pack(self, ctx: Context, memory: Tree, name: str, update: Tensor) -> tuple[Tree, list[bytes]]:
        n = update.shape[1]
        wanted = update + flat(memory["residual"]) if self.feedback else update
        index = largest(wanted, self.entries(n))
        values = wanted.gather(1, index)
        narrow = as_bytes(index.to(torch.int32)).view(len(index), -1, 4)[..., : _width(n)].flatten(1)
        payloads = [row.tobytes() for row in torch.cat([narrow, as_bytes(values)], 1).numpy()]
        if not self.feedback:
            return memory, payloads
        left = wanted.scatter(1, index, torch.zeros_like(values))
        return {"residual": left.view(memory["residual"].shape)}, payloads

    def unpack(
        self, ctx: Context, copies: Tree, name: str, payloads: list[bytes], like: Tensor
    ) -> tuple[Tree, Tensor]:
        n, k = like.shape[1], self.entries(like.shape[1])
        check_lengths(payloads, k * (_width(n) + like.dtype.itemsize))
        form = Form(("index", "values"), ((k, _width(n)), (k,)), (torch.uint8, like.dtype))
        sent = rows_of(payloads, form, like.device)
        shifts = torch.arange(0, 8 * _width(n), 8, device=like.device)
        index = (sent["index"].long() << shifts).sum(-1)  # [S, k]
        if bool((index >= n).any()) or bool((index.diff(dim=1) <= 0).any()):
            raise CodecError(f"the indices of a message must rise and lie below {n}")
        return copies, torch.zeros_like(like).scatter(1, index, sent["values"])


def largest(values: Tensor, k: int) -> Tensor:
    """The indices [S, k], rising, of the k entries of each row that are largest in size, the first among equals.

    `torch.topk` takes any of equals, another one on another device; and with p = 1 all of lp-proj's are equal.
    """
    size = torch.where(values.isnan(), torch.inf, values.abs())
    least = size.topk(k, dim=1).values[:, -1:] if k else size[:, :0]
    above, equal = size > least, size == least
    chosen = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    return chosen.nonzero()[:, 1].view(len(values), k)


def _width(n: int) -> int:
    """The bytes of an index below n."""
    return max(1, ((n - 1).bit_length() + 7) // 8)
