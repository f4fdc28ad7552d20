"""Tensors [N, ...] in a folder: one raw file each, and a JSON file that says what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from descant.files import map_tensor, name_of, read_json, sync, write_at, write_json

Spec = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # the shape of one client's row, and its type
_FORMAT = 1


class Leaves:
    """Leaves that are mapped into memory to be read. New files are zeros; being sparse, they take no space on the
    disk where nothing was written."""

    def __init__(self, folder: Path, clients: int, spec: Spec) -> None:
        self.folder = folder
        about = folder / "leaves.json"
        self._files = files = {name: folder / f"leaf{i}.bin" for i, name in enumerate(spec)}
        wanted = {
            name: {"file": files[name].name, "shape": [clients, *shape], "dtype": name_of(dtype)}
            for name, (shape, dtype) in spec.items()
        }
        folder.mkdir(parents=True, exist_ok=True)
        if not about.is_file():
            for name, (shape, dtype) in spec.items():
                _zeros(files[name], clients * prod(shape) * dtype.itemsize)
            write_json(about, {"format": _FORMAT, "leaves": wanted})  # last: with it the files are whole
        elif read_json(about) != {"format": _FORMAT, "leaves": wanted}:
            raise ValueError(f"{about} describes the clients of another run: remove the folder, or choose another")
        self._tensors = {
            name: map_tensor(files[name], [clients, *shape], dtype, writable=True)
            for name, (shape, dtype) in spec.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def write(self, name: str, who: Tensor, rows: Tensor) -> None:
        """Write the rows [K, ...] of the clients `who` [K].

        They go through the file and not through the mapping, which sees them all the same: filling the holes of a
        sparse file by page faults takes five times as long. Neighbours are written in one go.
        """
        leaf = self._tensors[name]
        size = leaf[0].numel() * leaf.element_size() if len(leaf) else 0
        if not size or not len(who):
            return
        raw = rows.to(leaf.dtype).contiguous().view(-1).view(torch.uint8).numpy().data
        breaks = (who.diff() != 1).nonzero().squeeze(1) + 1
        starts = [0, *breaks.tolist(), len(who)]
        with open(self._files[name], "rb+", buffering=0) as file:
            for start, stop in pairwise(starts):
                write_at(file.fileno(), int(who[start]) * size, raw[start * size : stop * size], self._files[name])

    def flush(self) -> None:
        """Wait until everything that was written is on the disk."""
        for file in self._files.values():
            sync(file)


def _zeros(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)
    sync(path)
