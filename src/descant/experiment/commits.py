"""Commits: one file a checkpoint, from which a run goes on.

A commit holds the round, the server's state, the clients that changed with their rows and accounts, and how many
segments of records count. It is written to a temporary name, made durable and renamed; only then may a mapped store
change. So whatever moment a process is killed at, the commits that lie there make the store whole again, and
repeating one that was carried out already changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from descant.engine import Record, Simulation, Snapshot
from descant.experiment.segments import read_segment, write_segment
from descant.files import write
from descant.trees import under, within


class Commits:
    """The commits of a run in a folder, and its segments of records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = sorted(folder.glob("commit-*.safetensors"))
        self._segments = 0

    def restore(self, simulation: Simulation) -> list[Record]:
        """Bring a simulation to where the last commit left it; return what had been reported until then."""
        for file in self._files:  # in order: the store may lack any of them after a power cut
            snapshot, self._segments = _read(file)
            simulation.restore(snapshot)
        counted = [self._segment(number) for number in range(self._segments)]
        for file in set(self.folder.glob("segment-*.safetensors")) - set(counted):
            file.unlink()  # written for a commit that never came to be
        return [record for file in counted for record in read_segment(file)]

    def write(self, simulation: Simulation, records: list[Record]) -> None:
        """Commit the last round, and what was reported since the commit before."""
        write_segment(self._segment(self._segments), records)
        self._segments += 1
        snapshot = simulation.snapshot()
        file = self.folder / f"commit-{snapshot.round:08d}.safetensors"
        _write(file, snapshot, self._segments)
        simulation.settle(snapshot)
        self._files.append(file)
        if len(self._files) > simulation.store.commits_kept:
            simulation.flush()
            for old in self._files[:-1]:
                old.unlink()
            self._files = [file]

    def _segment(self, number: int) -> Path:
        return self.folder / f"segment-{number:08d}.safetensors"


def _write(path: Path, snapshot: Snapshot, segments: int) -> None:
    tensors = under("server", snapshot.server) | {"spent": snapshot.spent}
    for store, (who, rows) in snapshot.rows.items():
        tensors |= {f"who.{store}": who} | under(f"rows.{store}", rows)
    tensors = {name: leaf.detach().cpu().contiguous().clone() for name, leaf in tensors.items()}
    about = json.dumps({"round": snapshot.round, "segments": segments})
    write(path, lambda temporary: save_file(tensors, temporary, {"commit": about}))


def _read(path: Path) -> tuple[Snapshot, int]:
    with safe_open(path, "pt") as file:
        about: dict[str, Any] = json.loads(file.metadata()["commit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    rows = {store: (who, within(f"rows.{store}", tensors)) for store, who in within("who", tensors).items()}
    return Snapshot(about["round"], within("server", tensors), rows, tensors["spent"]), about["segments"]
