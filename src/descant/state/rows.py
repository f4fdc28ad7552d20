"""Rows of clients that a GPU itself reads and writes in the processor's memory, in Triton.

Pinned memory has an address on the GPU, too. So one kernel moves the rows of any clients over the bus, from and to
where they lie, and the processor touches none of them.
"""

from __future__ import annotations

from math import gcd, prod

import torch
import triton
import triton.language as tl
from torch import Tensor

# The bus is full with some hundred KB on the way, since a byte takes one to two microseconds. What is on the way is
# one tile of each program. They are few, so that they leave the GPU to the work beside which rows travel.
_PROGRAMS = 16
_TILE = 2**14  # bytes, of one row or of several short ones
_WARPS = 8
_HELD = 16  # words of a thread, at most: tiles of short words are smaller
_LINE = 128  # bytes that the bus takes in one piece, if they begin at a multiple of it
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}  # by their bytes


# One program serves whatever clients there are, and wherever the tensors begin.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["length", "before", "clients", "across", "tiles"],
    do_not_specialize_on_alignment=["rows", "values", "who"],
)
def _move(  # type: ignore[no-untyped-def]
    rows,  # [N, length] words in the processor's memory
    values,  # [K, length] on the GPU
    who,  # [K]
    length,
    before,  # words from the start of a line to the first row
    clients,  # K
    across,  # tiles beside each other
    tiles,
    BACK: tl.constexpr,  # whether values go to their rows, or rows come
    ROWS: tl.constexpr,  # of a tile
    COLUMNS: tl.constexpr,
    LINE: tl.constexpr,  # words
):
    tile = tl.program_id(0).to(tl.int64)
    while tile < tiles:
        client = tile // across * ROWS + tl.arange(0, ROWS)
        real = client < clients
        first = tl.load(who + client, mask=real, other=0) * length  # its place among all words
        # Tiles begin where lines do, and the first one a little before its row.
        word = (tile % across * COLUMNS - (before + first) % LINE)[:, None] + tl.arange(0, COLUMNS)[None, :]
        inside = real[:, None] & (word >= 0) & (word < length)
        there, here = rows + first[:, None] + word, values + client[:, None] * length + word
        if BACK:
            tl.store(there, tl.load(here, mask=inside), mask=inside)
        else:
            tl.store(here, tl.load(there, mask=inside), mask=inside)
        tile += tl.num_programs(0)


def gather(rows: Tensor, who: Tensor, values: Tensor) -> None:
    """Begin `values[k] = rows[who[k]]`: rows [N, ...] in pinned memory, the others [K] and [K, ...] on a GPU."""
    _begin(rows, who, values, back=False)


def scatter(values: Tensor, rows: Tensor, who: Tensor) -> None:
    """Begin `rows[who[k]] = values[k]`, where nobody stands in `who` twice."""
    _begin(rows, who, values, back=True)


def _begin(rows: Tensor, who: Tensor, values: Tensor, back: bool) -> None:
    row = prod(rows.shape[1:]) * rows.element_size()
    if not len(who) or not row:
        return
    size = gcd(8, row, rows.data_ptr(), values.data_ptr())  # of the longest words that both consist of
    length, line, tile = row // size, _LINE // size, min(_TILE // size, 32 * _WARPS * _HELD)
    columns = min(tile, triton.next_power_of_2(length + line - 1))  # the row may begin at the end of a line
    across = triton.cdiv(length + line - 1, columns)
    tiles = triton.cdiv(len(who), tile // columns) * across
    words = (leaf.view(len(leaf), -1).view(_WORDS[size]) for leaf in (rows, values))  # never a copy
    _move[(min(_PROGRAMS, tiles),)](
        *(*words, who, length, rows.data_ptr() % _LINE // size, len(who), across, tiles),
        BACK=back,
        ROWS=tile // columns,
        COLUMNS=columns,
        LINE=line,
        num_warps=_WARPS,
    )


def arrives(rows: Tensor, device: torch.device) -> bool:
    """Whether what is written to the first of some rows [N, ...], and read again, stays what it was."""
    row = torch.empty(1, *rows.shape[1:], dtype=rows.dtype)
    if not row.numel():
        return True
    whatever = row.view(1, -1).view(torch.uint8).random_(generator=torch.Generator().manual_seed(0))
    there, first = row.to(device), torch.zeros(1, dtype=torch.int64, device=device)
    again = torch.zeros_like(there)
    scatter(there, rows, first)
    gather(rows, first, again)
    read = again.cpu()  # waits for both
    return all(each.view(1, -1).view(torch.uint8).equal(whatever) for each in (rows[:1], read))
