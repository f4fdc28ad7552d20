"""Numbers as bytes, as this machine lays them out, for many messages at once."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from descant.errors import CodecError
from descant.mail import Form


def raw(leaves: Mapping[str, Tensor], senders: int) -> list[bytes]:
    """A payload for each sender: its rows of the leaves [S, ...], one after the other."""
    blocks = [as_bytes(leaf) for leaf in leaves.values()]
    if not blocks:
        return [b""] * senders
    return [row.tobytes() for row in torch.cat(blocks, 1).numpy()]


def rows_of(payloads: list[bytes], form: Form, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The leaves [S, ...] that payloads of a form hold."""
    length = length_of(form)
    check_lengths(payloads, length)
    buffer = torch.frombuffer(bytearray(b"".join(payloads)), dtype=torch.uint8) if length and payloads else None
    leaves, start = {}, 0
    for name, shape, dtype in zip(form.names, form.shapes, form.dtypes, strict=True):
        size = prod(shape) * dtype.itemsize
        if buffer is None or not size:
            leaves[name] = torch.zeros(len(payloads), *shape, dtype=dtype, device=device)
        else:
            block = buffer.view(len(payloads), length)[:, start : start + size]
            block = block.clone(memory_format=torch.contiguous_format)  # numbers lie at multiples of their size
            leaves[name] = block.view(dtype).view(len(payloads), *shape).to(device)
        start += size
    return leaves


def as_bytes(leaf: Tensor) -> Tensor:
    """A leaf [S, ...] as bytes, uint8 [S, L]."""
    rows = flat(leaf.detach().cpu()).contiguous()
    if not rows.numel():
        return torch.empty(len(leaf), 0, dtype=torch.uint8)
    return rows.view(torch.uint8)  # numpy has no bfloat16, but it has bytes


def flat(leaf: Tensor) -> Tensor:
    """A leaf [S, ...] as rows [S, n]; one number each where it is [S]."""
    return leaf.unsqueeze(-1).flatten(1)


def peaks(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The largest size in each row [S, n], as [S, 1], and the rows over it, whose squares cannot overflow.

    Rows of zeros stay as they are.
    """
    if not rows.shape[1]:
        return rows.new_zeros(len(rows), 1), rows
    peak = rows.abs().amax(1, keepdim=True)
    return peak, rows / torch.where(peak == 0, 1.0, peak)


def wide(rows: Tensor) -> Tensor:
    """The rows in a type in which they can be summed: at least single precision."""
    return rows.float() if rows.dtype.itemsize < 4 else rows


def length_of(form: Form) -> int:
    """The bytes of one message of a form."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in zip(form.shapes, form.dtypes, strict=True))


def pieces(payloads: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Payloads that begin with the length of their first piece (4 bytes): the first pieces, and what is left."""
    firsts, rests = [], []
    for payload in payloads:
        length = int.from_bytes(payload[:4], "little")
        if len(payload) < 4 + length:
            raise CodecError(f"a payload of {len(payload)} bytes is too short for a piece of {length} bytes")
        firsts.append(payload[4 : 4 + length])
        rests.append(payload[4 + length :])
    return firsts, rests


def check_lengths(payloads: list[bytes], length: int) -> None:
    """Refuse payloads of another length."""
    for payload in payloads:
        if len(payload) != length:
            raise CodecError(f"a payload of {len(payload)} bytes arrived where {length} were expected")
