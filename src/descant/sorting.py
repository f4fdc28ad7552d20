"""The orders of examples on a GPU, in Triton: hashes are made and sorted in registers, and only orders are written.

A program has a few rows, one for each client and epoch, with the keys of all examples: the upper bits of a hash and
below them the example's number (`descant.draws`). What the threads of one warp exchange needs no shared memory, so
a row has one warp as long as its keys fit the registers of 32 threads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_SHORTEST = 16  # places of a row: all that are shorter have one program
_TOGETHER = 256  # keys that a program has at least: short rows share one
_HELD = 16  # keys of a thread, at most: beyond them a row has more warps

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_BEHIND = tl.constexpr(2**63 - 1)


@triton.jit
def _mix(z):  # type: ignore[no-untyped-def]
    z = (z ^ (z >> 30)) * _FIRST  # of unsigned numbers: >> moves in zeros
    z = (z ^ (z >> 27)) * _SECOND
    return z ^ (z >> 31)


@triton.jit
def _absorb(state, word):  # type: ignore[no-untyped-def]
    return _mix(_mix(word.to(tl.int64).to(tl.uint64, bitcast=True) + _GOLDEN) ^ state)


# One program serves whatever the numbers of clients, epochs and examples are, and wherever the tensors begin.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["key", "rows", "epochs", "examples"],
    do_not_specialize_on_alignment=["clients", "sizes"],
)
def _order(  # type: ignore[no-untyped-def]
    key,
    clients,  # [K]
    sizes,  # [K]
    out,  # [K, epochs, examples]
    rows,  # K epochs
    epochs,
    examples,
    LOW: tl.constexpr,  # bits of a key that are the example's number
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,  # of a row, padded
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    client = tl.load(clients + row // epochs, mask=real, other=0)
    size = tl.load(sizes + row // epochs, mask=real, other=0)
    state = _absorb(_absorb(key.to(tl.int64).to(tl.uint64, bitcast=True), client), row % epochs)
    example = tl.arange(0, LENGTH)[None, :]
    hashed = _absorb(state[:, None], example).to(tl.int64, bitcast=True)  # keys are sorted by their sign, too
    hashed = tl.where(example < tl.minimum(size, examples)[:, None], hashed, _BEHIND)
    keys = tl.sort((hashed >> LOW << LOW) | example)
    to = out + row[:, None] * examples + example
    tl.store(to, keys & ((1 << LOW) - 1), mask=real[:, None] & (example < examples))


def padded(examples: int) -> int:
    """The places of a row of so many examples: what programs are compiled for."""
    return max(_SHORTEST, triton.next_power_of_2(examples))  # type: ignore[no-any-return]


def orders(key: Tensor, clients: Tensor, epochs: int, examples: int, sizes: Tensor, low: int) -> Tensor:
    """The orders [K, epochs, examples] as in `descant.draws`; of a key, `low` bits are the example's number."""
    out = clients.new_empty(len(clients), epochs, examples)
    length = padded(examples)
    together, rows = max(1, _TOGETHER // length), len(clients) * epochs
    with torch.cuda.device(clients.get_device()):
        _order[(triton.cdiv(rows, together),)](
            *(int(key), clients.contiguous(), sizes.contiguous(), out, rows, epochs, examples),
            LOW=low,
            ROWS=together,
            LENGTH=length,
            num_warps=max(1, length // (32 * _HELD)),
        )
    return out
