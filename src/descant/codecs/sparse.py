"""Few entries of a vector as bytes: which they are, and their values."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.codecs.bits import Reader, write
from descant.codecs.raw import as_bytes, rows_of
from descant.codecs.universal import read_rice, rice
from descant.errors import CodecError
from descant.mail import Form


def largest(values: Tensor, k: int) -> Tensor:
    """The indices [S, k], rising, of the k entries of each row that are largest in size, the first among equals.

    `torch.topk` takes any of equals, another one on another device; and with p = 1 all of lp-proj's are equal.
    """
    size = torch.where(values.isnan(), torch.inf, values.abs())
    least = size.topk(k, dim=1).values[:, -1:] if k else size[:, :0]
    above, equal = size > least, size == least
    chosen = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    return chosen.nonzero()[:, 1].view(len(values), k)


def pack_values(values: Tensor) -> list[bytes]:
    """The values [S, k] as they are."""
    return [row.tobytes() for row in as_bytes(values).numpy()]


def unpack_values(payloads: list[bytes], k: int, like: Tensor) -> Tensor:
    """The values [S, k] of the type of `like`."""
    return rows_of(payloads, Form(("values",), ((k,),), (like.dtype,)), like.device)["values"]


def pack_entries(index: Tensor, values: Tensor, n: int) -> list[bytes]:
    """Values [S, k] as they are, then their rising indices [S, k] below n in Rice's code."""
    coded = write(*rice(index.cpu().numpy(), n))
    return [value + code for value, code in zip(pack_values(values), coded, strict=True)]


def unpack_entries(payloads: list[bytes], k: int, like: Tensor) -> Tensor:
    """Rows [S, n] like `like`, zero but for the k entries of each payload."""
    n, size = like.shape[1], k * like.dtype.itemsize
    for payload in payloads:
        if len(payload) < size:
            raise CodecError(f"a payload of {len(payload)} bytes is too short for {k} values of {size} bytes")
    values = unpack_values([payload[:size] for payload in payloads], k, like)
    bits = Reader([payload[size:] for payload in payloads])
    index = torch.from_numpy(read_rice(bits, k, n)).to(like.device)
    bits.finish()
    return torch.zeros_like(like).scatter(1, index, values)
