"""Safetensors files that carry their checksum as the first entry of their metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from descant.files import NO_LINK, write_at, write_bytes
from descant.sealed.plain import BLOCK, DIGEST, damaged, hash_of, opened

_HEADER_AT_MOST = 2**26  # bytes
_HEAD = b'{"__metadata__":{"checksum":"'
_AT = 8 + len(_HEAD)  # where the checksum lies
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
}
_NAMES = {name: dtype for dtype, name in _TYPES.items()}

Leaves = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # the types and the shapes of tensors
Digests = NDArray[np.uint8]  # [K, 16], of rows


class Placed(NamedTuple):
    """Where a tensor lies in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    about: Mapping[str, Any],
    digests: Mapping[str, Digests] | None = None,
) -> str:
    """Write a safetensors file with `about` as JSON in its metadata; return its checksum.

    Tensors whose rows have `digests` already go into the checksum by these, so that a row that stays as it is from
    file to file is read once.
    """
    by_row = digests or {}
    ready = {name: leaf.detach().cpu().contiguous() for name, leaf in tensors.items()}
    shapes = {name: (leaf.dtype, tuple(leaf.shape)) for name, leaf in ready.items()}
    header, places = header_of(shapes, about, sorted(by_row))
    pieces = {name: _raw(ready[name]) for name in places}
    covered = [by_row[name].data if name in by_row else piece for name, piece in pieces.items()]
    if sum(map(len, covered)) < BLOCK:
        checksum = hash_of(header, *covered)
        write_bytes(path, [_with(header, checksum), *pieces.values()])
        return checksum
    with ThreadPoolExecutor(max_workers=1) as beside:  # the checksum is found while the rest is written
        found = beside.submit(hash_of, header, *covered)
        write_bytes(path, pieces.values(), head=lambda: _with(header, found.result()), head_size=len(header))
    return found.result()


def row_digests(rows: Tensor) -> Digests:
    """What each row [K, ...] of a tensor goes into a checksum by [K, 16]: blake2b of its bytes."""
    ready = rows.detach().cpu().contiguous()
    raw, size = _raw(ready), ready[0].numel() * ready.element_size() if len(ready) else 0
    found = b"".join(
        blake2b(raw[i * size : (i + 1) * size], digest_size=DIGEST).digest() for i in range(len(ready))
    )
    return np.frombuffer(found, np.uint8).reshape(len(ready), DIGEST)


def header_of(leaves: Leaves, about: Mapping[str, Any], by_row: Sequence[str] = ()) -> tuple[bytes, dict[str, int]]:
    """What a safetensors file begins with, zeros for its checksum, and where each tensor lies in it, in order.

    It names the tensors that go into its checksum row by row.
    """
    ordered = sorted(leaves, key=lambda name: (-leaves[name][0].itemsize, name))  # each aligned to its own type
    entries: dict[str, Any] = {}
    end = 0
    for name in ordered:
        dtype, shape = leaves[name]
        start, end = end, end + prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _TYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    said = {"about": json.dumps(about)} | ({"rows": json.dumps(by_row)} if by_row else {})
    rest = json.dumps(said)[1:]  # what follows the checksum in the metadata
    header = _HEAD + b"0" * 2 * DIGEST + b'",' + rest.encode()
    header += b"," + json.dumps(entries)[1:].encode() if entries else b"}"
    header += b" " * (-len(header) % 8)
    places = {name: 8 + len(header) + entries[name]["data_offsets"][0] for name in ordered}
    return len(header).to_bytes(8, "little") + header, places


def seal(path: Path) -> str:
    """Put the checksum into a safetensors file that was written piece by piece after its header; return it."""
    with opened(path) as file:
        _, checksum = _read_header(path, file)
    descriptor = os.open(path, os.O_WRONLY | NO_LINK)
    try:
        write_at(descriptor, _AT, memoryview(checksum.encode()), path)
    finally:
        os.close(descriptor)
    return checksum


def begins_sealed(path: Path) -> bool:
    """Whether a file begins as tensors with their checksum do; whether that is right is not looked at."""
    with path.open("rb") as file:
        return file.read(_AT)[8:] == _HEAD


def open_tensors(path: Path) -> tuple[dict[str, Placed], dict[str, Any], str]:
    """Which tensors lie where in a safetensors file, what it says about them, and its checksum.

    The file is read once, to see that it is what was written, and never held in memory as a whole.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        header, checksum = _read_header(path, file)
        if checksum.encode() != header[len(_HEAD) : len(_HEAD) + 2 * DIGEST]:
            raise damaged(path, "is damaged (its checksum is another)")
    try:
        entries = json.loads(header)
        about = json.loads(entries.pop("__metadata__")["about"])
        placed = {name: _placed(entry, 8 + len(header), size) for name, entry in entries.items()}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise damaged(path, "is damaged (what it says of itself cannot be)") from None
    return placed, about, checksum


def _read_header(path: Path, file: BufferedReader) -> tuple[bytes, str]:
    """The header of a safetensors file, and the checksum that the whole file should carry."""
    header, _ = _head(path, file)
    end = len(_HEAD) + 2 * DIGEST
    digest = blake2b(len(header).to_bytes(8, "little"), digest_size=DIGEST)
    digest.update(header[: len(_HEAD)] + b"0" * 2 * DIGEST + header[end:])
    while block := file.read(BLOCK):
        digest.update(block)
    return header, digest.hexdigest()


def _head(path: Path, file: BufferedReader) -> tuple[bytes, int]:
    """The header of a safetensors file, and how many bytes follow it."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not len(_HEAD) + 2 * DIGEST <= length <= min(size - 8, _HEADER_AT_MOST):
        raise damaged(path, "is damaged (it is cut off, or no file of tensors)")
    return file.read(length), size - 8 - length


def _placed(entry: Mapping[str, Any], begin: int, size: int) -> Placed:
    dtype, shape, (start, stop) = _NAMES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if not 0 <= start <= stop <= size - begin or stop - start != prod(shape) * dtype.itemsize:
        raise ValueError("a tensor that does not lie in its file")
    return Placed(dtype, shape, begin + start)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """The tensors of a safetensors file as they were written, what it says about them, and its checksum."""
    with opened(path) as file:
        header, rest = _head(path, file)
        end = len(_HEAD) + 2 * DIGEST
        claimed = header[len(_HEAD) : end]
        body = torch.empty(rest, dtype=torch.uint8)
        if len(body) and file.readinto(body.numpy().data) != len(body):
            raise damaged(path, "was cut off while it was read")
    blank = len(header).to_bytes(8, "little") + header[: len(_HEAD)] + b"0" * 2 * DIGEST + header[end:]
    try:
        entries = json.loads(header)
        said = entries.pop("__metadata__")
        about, by_row = json.loads(said["about"]), json.loads(said.get("rows", "[]"))
        tensors = {name: _tensor(body, entry) for name, entry in entries.items()}
        checksum = hash_of(blank, *(_covered(body, entries, tensors, by_row) if by_row else [_raw(body)]))
    except (ValueError, LookupError, TypeError, RecursionError, RuntimeError, AttributeError):
        raise damaged(path, "is damaged (what it says of itself cannot be)") from None
    if checksum.encode() != claimed:
        raise damaged(path, "is damaged (its checksum is another)")
    return tensors, about, checksum


def _covered(
    body: Tensor, entries: Mapping[str, Any], tensors: Mapping[str, Tensor], by_row: Sequence[str]
) -> Iterator[memoryview]:
    """What goes into a checksum, tensor by tensor: the digests of its rows, or its bytes."""
    at = 0
    for name, entry in entries.items():  # as they were written, one after the other
        start, stop = entry["data_offsets"]
        if start != at:
            raise ValueError("bytes that belong to no tensor")
        at = stop
        yield row_digests(tensors[name]).data if name in by_row else _raw(body[start:stop])
    if at != len(body):
        raise ValueError("bytes that belong to no tensor")


def _with(header: bytes, checksum: str) -> bytes:
    return header[:_AT] + checksum.encode() + header[_AT + 2 * DIGEST :]


def _raw(leaf: Tensor) -> memoryview:
    return leaf.reshape(-1).view(torch.uint8).numpy().data if leaf.numel() else memoryview(b"")


def _tensor(body: Tensor, entry: Mapping[str, Any]) -> Tensor:
    dtype, shape, (start, stop) = _NAMES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not 0 <= start <= stop <= len(body) or stop - start != prod(shape) * dtype.itemsize:
        raise ValueError("a tensor that does not lie in its file")
    return body[start:stop].view(dtype).view(shape)
