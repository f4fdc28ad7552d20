"""Count sketches: the heavy entries of a vector, found in a small table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf
from descant.codecs.bits import lots
from descant.codecs.feedback import MomentumFeedback, check_finite, count
from descant.codecs.raw import rows_of
from descant.codecs.sparse import largest, pack_values
from descant.errors import require
from descant.mail import Form
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class CountSketch(MomentumFeedback):
    """A count sketch (Charikar et al., 2002) finds the heavy entries, as in Sketched-SGD (Ivkin et al., 2019).

    Every entry is added, with a sign, to one of c columns in each row j of a table: T[j, h_j(i)] += s_j(i) v_i. The
    median over j of s_j(i) T[j, h_j(i)] estimates v_i. The share `share` of the entries whose estimates are largest
    is sent, at least one. `rows` is the number of rows, and `columns` says what share of the n entries c is. Both
    ends draw h and s, other ones in each round.

    In the paper the server asks clients for the exact values in a second exchange. Here a client reads its own
    sketch as the server will, and sends the values along: rows c + k numbers, and no index. A sketch is made anew
    for each message. u <- beta u + update and v <- v + u are gathered before it, and cleared where an entry was
    sent; `beta` is that of `dgc`.
    """

    name: ClassVar[str] = "sketch"

    share: float = 0.01
    rows: int = 5
    columns: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 < self.share <= 1, "above 0 and at most 1")
        require(self, "rows", self.rows >= 1, "at least 1")
        require(self, "columns", 0 < self.columns <= 1, "above 0 and at most 1")

    def choose(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        check_finite(leaf, wanted)
        S, n = wanted.shape
        column, sign = self._hashes(leaf, wanted)
        table = wanted.new_zeros(S, self.rows, count(self.columns, n))
        for j in range(self.rows):
            table[:, j].index_add_(1, column[j], wanted * sign[j])
        index = self._heavy(table, column, sign)
        return pack_values(torch.cat([table.flatten(1), wanted.gather(1, index)], 1)), index

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n = like.shape[1]
        shapes = ((self.rows, count(self.columns, n)), (count(self.share, n),))
        read = rows_of(payloads, Form(("table", "values"), shapes, (like.dtype, like.dtype)), like.device)
        index = self._heavy(read["table"], *self._hashes(leaf, like))
        return copies, torch.zeros_like(like).scatter(1, index, read["values"])

    def _hashes(self, leaf: Leaf, like: Tensor) -> tuple[Tensor, Tensor]:
        """The column h_j(i) and the sign s_j(i) of entry i in row j, [rows, n] each."""
        n = like.shape[1]
        drawn = leaf.ctx.bits(f"sketch {leaf.name}", (-(-self.rows // 2), n)).to(like.device)
        halves = torch.cat([drawn, drawn >> 32])[: self.rows]  # 32 random bits are enough for a row
        column = (halves >> 1 & 0x7FFFFFFF) % max(1, count(self.columns, n))
        return column, (1 - 2 * (halves & 1)).to(like.dtype)

    def _heavy(self, table: Tensor, column: Tensor, sign: Tensor) -> Tensor:
        """The indices [S, k] of the entries whose estimates are largest; the same at both ends, to the bit."""
        S, n = len(table), column.shape[1]
        index = torch.zeros(S, count(self.share, n), dtype=torch.int64, device=table.device)
        for lot in lots(S, self.rows * n):
            estimates = torch.stack([table[lot, j, column[j]] * sign[j] for j in range(self.rows)])  # [rows, ., n]
            index[lot] = largest(estimates.median(0).values, index.shape[1])
        return index
