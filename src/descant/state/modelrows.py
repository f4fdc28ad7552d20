"""The models of a federation in rows: one of every client, or one for all; in memory, or in a file.

A file is safetensors with a tensor for every parameter and running statistic, by its name in the module, and the
client on the first axis: [N, ...]. What is the same for all clients is [1, ...].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from descant.files import NO_LINK, copy_file, naming, read_at, sync, write_at
from descant.sealed import Placed, damaged, header_of, open_tensors, seal, write_tensors
from descant.task import Layout


@dataclass(frozen=True)
class Frame:
    """How models lie in rows: `rows` of parameters and `statistic_rows` of running statistics, each N or 1."""

    layout: Layout
    statistics: Layout
    dtype: torch.dtype
    rows: int
    statistic_rows: int

    @property
    def common(self) -> bool:
        """Whether all clients have the same model."""
        return self.rows == self.statistic_rows == 1

    @property
    def bytes(self) -> int:
        numbers = self.rows * self.layout.dim + self.statistic_rows * self.statistics.dim
        return numbers * self.dtype.itemsize

    @property
    def leaves(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Type and shape of every tensor."""
        found: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        for of, rows in ((self.layout, self.rows), (self.statistics, self.statistic_rows)):
            found |= {n: (self.dtype, (rows, *shape)) for n, shape in zip(of.names, of.shapes, strict=True)}
        return found

    def split(self, x: Tensor, statistics: Tensor) -> dict[str, Tensor]:
        """Rows [K, d] and [K, b] as named tensors [K, ...]."""
        found: dict[str, Tensor] = {}
        for of, rows in ((self.layout, x), (self.statistics, statistics)):
            pieces = torch.split(rows, of.sizes, 1) if of.names else ()
            found |= {n: p.reshape(len(p), *s) for n, s, p in zip(of.names, of.shapes, pieces, strict=True)}
        return found

    def join(self, named: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Named tensors [K, ...] as rows [K, d] and [K, b]."""

        def rows(of: Layout) -> Tensor:
            leaves = [named[name].reshape(len(named[name]), -1) for name in of.names]
            return torch.cat(leaves, 1) if leaves else torch.empty(1, 0, dtype=self.dtype)

        return rows(self.layout), rows(self.statistics)


class Rows(Protocol):
    """The models of a round, to be read."""

    @property
    def common(self) -> bool:
        """Whether all clients have the same model."""
        ...

    def of(self, client: int) -> dict[str, Tensor]:
        """One client's model by the names in its module."""
        ...

    def write(self, path: Path, about: Mapping[str, Any]) -> str:
        """Leave the rows in a file, which is whole or absent; return its checksum."""
        ...


class ModelRows:
    """Rows in memory."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._x = torch.empty(frame.rows, frame.layout.dim, dtype=frame.dtype)
        self._statistics = torch.empty(frame.statistic_rows, frame.statistics.dim, dtype=frame.dtype)

    def put(self, start: int, x: Tensor, statistics: Tensor) -> None:
        """Take the models x [K, d] of the clients from `start` on, with their running statistics [K, b]."""
        for held, new in ((self._x, x), (self._statistics, statistics)):
            if len(held) > 1:
                held[start : start + len(new)] = new.detach()
            elif start == 0:
                held[0] = new[0].detach()

    def some(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The models of the clients from `start` to `stop`: [K, d] and [K, b]; one row where all have the same."""
        x, statistics = (held[start:stop] if len(held) > 1 else held for held in (self._x, self._statistics))
        return x, statistics

    @property
    def common(self) -> bool:
        return self.frame.common

    def of(self, client: int) -> dict[str, Tensor]:
        return {name: leaf[0] for name, leaf in self.frame.split(*self.some(client, client + 1)).items()}

    def write(self, path: Path, about: Mapping[str, Any]) -> str:
        return write_tensors(path, self.frame.split(self._x, self._statistics), about)


class SpooledRows:
    """Rows that go into a file as they come, for more than memory holds. It has a temporary name until `write`."""

    def __init__(self, frame: Frame, temporary: Path, about: Mapping[str, Any]) -> None:
        self.frame, self._file = frame, temporary
        header, places = header_of(frame.leaves, about)
        self._placed = {name: Placed(*frame.leaves[name], at) for name, at in places.items()}
        with naming(temporary):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o666)
        try:
            write_at(descriptor, 0, memoryview(header), temporary)
        finally:
            os.close(descriptor)

    def put(self, start: int, x: Tensor, statistics: Tensor) -> None:
        with open(self._file, "rb+", buffering=0) as file:
            for name, rows in self.frame.split(x.detach().cpu(), statistics.detach().cpu()).items():
                dtype, (held, *shape), at = self._placed[name]
                if (held > 1 or start == 0) and (size := prod(shape) * dtype.itemsize):
                    raw = rows[:held].to(dtype).contiguous().view(-1).view(torch.uint8).numpy().data
                    write_at(file.fileno(), at + start * size, raw, self._file)

    def some(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.frame.join(_read(self._file, self._placed, start, stop))

    @property
    def common(self) -> bool:
        return self.frame.common

    def of(self, client: int) -> dict[str, Tensor]:
        return {name: leaf[0] for name, leaf in _read(self._file, self._placed, client, client + 1).items()}

    def write(self, path: Path, about: Mapping[str, Any]) -> str:
        checksum = seal(self._file)
        sync(self._file)
        with naming(path):
            os.replace(self._file, path)
        sync(path.parent)
        return checksum

    def close(self) -> None:
        """Remove the file, unless it has its name already."""
        self._file.unlink(missing_ok=True)


class FiledRows:
    """Rows in a file, of which one client's are read at a time. The file is checked before the first is."""

    def __init__(self, path: Path, checksum: str | None) -> None:
        self.path, self._checksum = path, checksum
        self._placed: dict[str, Placed] | None = None

    def check(self) -> dict[str, Placed]:
        """Where the tensors lie in the file, once it is known to be the one that was written."""
        if self._placed is None:
            if self.path.parent.is_symlink():
                raise damaged(self.path, "lies behind a link")
            placed, _, checksum = open_tensors(self.path)
            if not all(leaf.shape for leaf in placed.values()):
                raise damaged(self.path, "holds no rows of models")
            if checksum != self._checksum:
                raise damaged(self.path, "holds the models of another round, or of another run")
            self._placed = placed
        return self._placed

    @property
    def common(self) -> bool:
        return all(placed.shape[0] == 1 for placed in self.check().values())

    def of(self, client: int) -> dict[str, Tensor]:
        return {name: leaf[0] for name, leaf in _read(self.path, self.check(), client, client + 1).items()}

    def write(self, path: Path, about: Mapping[str, Any]) -> str:
        self.check()
        if path != self.path:
            copy_file(self.path, path)
        assert self._checksum is not None
        return self._checksum


def _read(path: Path, placed: Mapping[str, Placed], start: int, stop: int) -> dict[str, Tensor]:
    """The rows from `start` to `stop` of every tensor, or the only one that there is."""
    found = {}
    with open(path, "rb", buffering=0) as file:
        for name, (dtype, (held, *shape), at) in placed.items():
            first, last = (start, min(stop, held)) if held > 1 else (0, 1)
            rows = torch.empty(last - first, *shape, dtype=dtype)
            if rows.numel():
                raw = rows.view(-1).view(torch.uint8).numpy().data
                read_at(file.fileno(), at + first * (len(raw) // len(rows)), raw, path)
            found[name] = rows
    return found
