"""Count sketches: the heavy entries of a vector, found in a small table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs.base import Leaf, blocks
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
    ends draw h and s, other ones in each round. (In that paper the server adds the clients' sketches and looks for
    the heavy entries of the sum. Here every client's are looked for alone, so that it costs more than `top-k`.)

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
        v, n = wanted.cpu(), wanted.shape[1]  # there sums have one order; on a GPU they differ from run to run
        table = v.new_zeros(len(v), self.rows, count(self.columns, n))
        for some in blocks(n):
            for j, (column, sign) in enumerate(self._hashes(leaf, some, table)):
                table[:, j].index_add_(1, column, v[:, some] * sign)
        index = self._heavy(leaf, table, n)
        return pack_values(torch.cat([table.flatten(1), v.gather(1, index)], 1)), index.to(wanted.device)

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        n = like.shape[1]
        shapes = ((self.rows, count(self.columns, n)), (count(self.share, n),))
        read = rows_of(payloads, Form(("table", "values"), shapes, (like.dtype, like.dtype)), like.device)
        index = self._heavy(leaf, read["table"], n)
        return copies, torch.zeros_like(like).scatter(1, index, read["values"])

    def _heavy(self, leaf: Leaf, table: Tensor, n: int) -> Tensor:
        """The indices [S, k] of the entries whose estimates are largest; the same at both ends, to the bit."""
        estimates = table.new_zeros(len(table), n)
        for some in blocks(n):
            hashes = enumerate(self._hashes(leaf, some, table))
            estimates[:, some] = median(
                [table[:, j].index_select(1, column) * sign for j, (column, sign) in hashes]
            )
        return largest(estimates, count(self.share, n))

    def _hashes(self, leaf: Leaf, some: slice, table: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The columns h_j(i) and the signs s_j(i) of some entries i, for every row j."""
        found = []
        for pair in range(-(-self.rows // 2)):
            drawn = leaf.common_bits(f"sketch {pair}", some).to(table.device)
            for half in (drawn, drawn >> 32):  # 32 random bits are enough for a row
                found.append(((half >> 1 & 0x7FFFFFFF) % table.shape[2], (1 - 2 * (half & 1)).to(table.dtype)))
        return found[: self.rows]


def median(rows: list[Tensor]) -> Tensor:
    """The median of some tensors, entry by entry; of an even number, the lower of the two in the middle.

    Bubbles rise through the list until its middle is in place: a few passes over the memory. `torch.median` takes
    some ten times as long along a short axis.
    """
    rows, middle = list(rows), (len(rows) - 1) // 2
    for last in range(len(rows) - 1, middle - 1, -1):
        for j in range(last):
            rows[j], rows[j + 1] = torch.minimum(rows[j], rows[j + 1]), torch.maximum(rows[j], rows[j + 1])
    return rows[middle]
