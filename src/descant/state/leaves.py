"""Tensors [N, ...] in a folder: one raw file each, and a JSON file that says what they hold.

leaves.json   the shapes and types, and the round at which everything was last made durable
leaf0.bin...  the rows, as raw numbers
sums.bin      a checksum (blake2b, 64 bits) of every client's row in every leaf, 0 where it was never written
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from descant.files import NO_LINK, dtype_of, make_folder, name_of, naming, read_at, sync, write_at
from descant.sealed import Digests, damaged, read_json, row_digests, write_json

Shapes = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # the shape of one client's row, and its type
ABOUT, SUMS = "leaves.json", "sums.bin"
FORMAT = 3
_BLOCK = 2**24  # bytes that are checked in one go


class Leaves:
    """Leaves that are read and written by row. New files are zeros; being sparse, they take no space on the disk
    where nothing was written.

    Rows go through calls of the system and not through a mapping, which a full or a shrunken disk turns into a
    signal that kills the process.
    """

    def __init__(self, folder: Path, clients: int, spec: Shapes) -> None:
        self.folder, self.clients, self.spec = folder, clients, dict(spec)
        self.round = 0  # up to which everything is durable here
        self._files = {name: folder / f"leaf{i}.bin" for i, name in enumerate(spec)}
        self._about = {
            name: {"file": self._files[name].name, "shape": [clients, *shape], "dtype": name_of(dtype)}
            for name, (shape, dtype) in spec.items()
        }
        self._sizes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in spec.items()}
        self._empty = not (folder / ABOUT).exists()  # and made by us, just now
        if self._empty:
            self._create()
        else:
            self._reopen()
        self._sums = {name: self._read_sums(i) for i, name in enumerate(spec)}
        self._roots = {name: _xor(sums) for name, sums in self._sums.items()}

    def __getitem__(self, name: str) -> Tensor:
        """All rows of a leaf [N, ...], read into memory."""
        return self.read(name, torch.arange(self.clients))

    def read(self, name: str, who: Tensor) -> Tensor:
        """The rows [K, ...] of the clients `who` [K]."""
        shape, dtype = self.spec[name]
        rows = torch.empty(len(who), *shape, dtype=dtype)
        if rows.numel():
            raw, size = rows.view(-1).view(torch.uint8).numpy().data, self._sizes[name]
            with open(self._files[name], "rb", buffering=0) as file:
                for start, stop, at in _runs(who):
                    read_at(file.fileno(), at * size, raw[start * size : stop * size], self._files[name])
        return rows

    def write(self, name: str, who: Tensor, rows: Tensor, digests: Digests | None = None) -> None:
        """Write the rows [K, ...] of the clients `who` [K], whose `digests` may be known. Neighbours go at once."""
        size = self._sizes[name]
        if not size or not len(who):
            return
        ready = rows.to(self.spec[name][1]).contiguous()
        raw, runs = ready.view(-1).view(torch.uint8).numpy().data, _runs(who)
        sums = _row_sums(name, who.tolist(), row_digests(ready) if digests is None else digests)
        with open(self._files[name], "rb+", buffering=0) as file:
            for start, stop, at in runs:
                write_at(file.fileno(), at * size, raw[start * size : stop * size], self._files[name])
        with open(self._sums_file, "rb+", buffering=0) as file:
            first = list(self.spec).index(name) * self.clients
            for start, stop, at in runs:
                part = sums[start:stop].view(np.uint8).data
                write_at(file.fileno(), (first + at) * 8, part, self._sums_file)
        changed = np.unique(who.numpy())
        self._roots[name] ^= _xor(self._sums[name][changed])
        self._sums[name][who.numpy()] = sums
        self._roots[name] ^= _xor(self._sums[name][changed])

    def flush(self, round: int) -> None:
        """Make everything durable that was written, up to a round."""
        for file in (*self._files.values(), self._sums_file):
            sync(file)
        self.round = round
        self._write_about()

    def others(self, who: Tensor) -> dict[str, str]:
        """One number a leaf for the rows of everyone but `who`: it is another as soon as one of them is."""
        changed = np.unique(who.cpu().numpy())
        return {name: f"{root ^ _xor(self._sums[name][changed]):016x}" for name, root in self._roots.items()}

    def check(self, who: Tensor, others: Mapping[str, str]) -> None:
        """Refuse rows that are not what was written, or (everyone's but those of `who`) not of this moment."""
        found = self.others(who)
        for name in self.spec:
            if others.get(name, f"{0:016x}") != found[name]:
                raise damaged(
                    self._files[name],
                    f"holds rows of another moment than the run's last commit (or {SUMS} beside it is damaged)",
                )
            if not self._empty:
                self._check(name)

    def _check(self, name: str) -> None:
        """Every row is what its checksum says, and zeros where it was never written."""
        size = self._sizes[name]
        for who in torch.split(torch.arange(self.clients), max(1, _BLOCK // max(size, 1))) if size else ():
            rows, sums = self.read(name, who), self._sums[name][who.numpy()]
            raw = rows.view(-1).view(torch.uint8).numpy()
            good: NDArray[np.bool_] = raw.reshape(len(who), size).max(1) == 0
            written = np.flatnonzero(sums)
            digests = row_digests(torch.from_numpy(raw.reshape(len(who), size)[written]))  # bytes: 3 is no true
            good[written] = _row_sums(name, who[written].tolist(), digests) == sums[written]
            if not good.all():
                bad = int(who[int(np.argmin(good))])
                raise damaged(self._files[name], f"is damaged (the row of client {bad} is not what was written)")

    def _create(self) -> None:
        make_folder(self.folder)
        for name, file in self._files.items():
            _zeros(file, self.clients * self._sizes[name])
        _zeros(self._sums_file, self.clients * len(self.spec) * 8)
        sync(self.folder)  # the entries of the files must not come later than leaves.json
        self._roots = dict.fromkeys(self.spec, 0)
        self._write_about()  # last: with it the files are whole

    def _reopen(self) -> None:
        about, _ = read_json(self.folder / ABOUT)
        if (then := about.get("format")) != FORMAT:
            raise damaged(self.folder / ABOUT, f"is of format {then}, and this version reads format {FORMAT}")
        if about.get("leaves") != self._about:
            raise damaged(self.folder / ABOUT, "describes the clients of another run")
        self.round = int(about["round"])
        sizes = {file: self.clients * self._sizes[name] for name, file in self._files.items()}
        for file, size in (sizes | {self._sums_file: self.clients * len(self.spec) * 8}).items():
            if file.is_symlink() or not file.is_file():
                raise damaged(file, "is missing")
            if file.stat().st_size != size:
                raise damaged(file, f"has {file.stat().st_size} bytes and not the {size} that were written")

    @property
    def _sums_file(self) -> Path:
        return self.folder / SUMS

    def _read_sums(self, leaf: int) -> NDArray[np.uint64]:
        sums = np.empty(self.clients, np.uint64)
        with open(self._sums_file, "rb", buffering=0) as file:
            read_at(file.fileno(), leaf * self.clients * 8, sums.view(np.uint8).data, self._sums_file)
        return sums

    def _write_about(self) -> None:
        roots = {name: f"{root:016x}" for name, root in self._roots.items()}
        about: dict[str, Any] = {"format": FORMAT, "round": self.round, "leaves": self._about, "roots": roots}
        write_json(self.folder / ABOUT, about)


def _runs(who: Tensor) -> list[tuple[int, int, int]]:
    """Neighbours among the clients `who`: from where to where in `who`, and the first of them."""
    breaks = (who.diff() != 1).nonzero().squeeze(1) + 1
    starts = [0, *breaks.tolist(), len(who)]
    firsts = who[starts[:-1]].tolist() if len(who) else []
    return [(start, stop, first) for (start, stop), first in zip(pairwise(starts), firsts, strict=True)]


def _row_sums(name: str, who: list[int], digests: Digests) -> NDArray[np.uint64]:
    """A checksum of each row that tells its leaf and its client, too; never 0."""
    begun, raw = blake2b(name.encode(), digest_size=8), digests.tobytes()
    size = digests.shape[1]
    sums = bytearray()
    for i, client in enumerate(who):
        digest = begun.copy()
        digest.update(client.to_bytes(8, "little") + raw[i * size : (i + 1) * size])
        sums += digest.digest()
    return np.maximum(np.frombuffer(sums, np.uint64), np.uint64(1))


def _xor(sums: NDArray[np.uint64]) -> int:
    return int(np.bitwise_xor.reduce(sums))


def _zeros(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o666)
    try:
        with naming(path):
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_leaves(folder: Path) -> None:
    """Refuse rows that are not what they were when they were last made durable."""
    about, _ = read_json(folder / ABOUT)
    try:
        spec = {name: (tuple(leaf["shape"][1:]), dtype_of(leaf["dtype"])) for name, leaf in about["leaves"].items()}
        clients = min((int(leaf["shape"][0]) for leaf in about["leaves"].values()), default=0)
        roots = dict(about["roots"])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise damaged(folder / ABOUT, "does not describe the rows of clients") from None
    Leaves(folder, clients, spec).check(torch.empty(0, dtype=torch.int64), roots)
