"""Commits: one file a checkpoint, from which a run goes on.

A commit holds the round, the server's state, the clients that changed with their rows and accounts, and how many
segments of records count. It is written to a temporary name, made durable and renamed; only then may a store on
disk change. So whatever moment a process is killed at, the commits that lie there make the store whole again, and
repeating one that was carried out already changes nothing.

A commit says which run it is of, which commit it follows, and, in one number a leaf, what the rows of all the other
clients are. So nothing that is missing, stale or of another run is gone on from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.engine import Record, Simulation, Snapshot
from descant.errors import DamagedError
from descant.experiment.segments import read_segment, write_segment
from descant.sealed import Digests, damaged, read_tensors, write_tensors
from descant.state import Leaves
from descant.trees import under, within


class Commits:
    """The commits of a run in a folder, and its segments of records; `begun` tells the run from all others."""

    def __init__(self, folder: Path, begun: str) -> None:
        self.folder, self.begun = folder, begun
        self._files = sorted(folder.glob("commit-*.safetensors"))
        self._round, self._segments, self._history = 0, 0, ""
        self.models: Any = {}  # what the last commit said of the models that the run keeps

    def restore(self, simulation: Simulation) -> list[Record]:
        """Bring a simulation to where the last commit left it; return what had been reported until then."""
        stores, self._round = _stores(simulation), 0
        about: dict[str, Any] = {"segments": 0, "history": "", "others": {}}
        changed: dict[str, Tensor] = {}
        flushed = min((leaves.round for leaves in stores.values()), default=None)
        needed = self._needed(flushed)
        for file in needed:  # in order: the store may lack any of them after a power cut
            snapshot, about = _read(file, self.begun)
            if flushed is not None and about["base"] > max(flushed, self._round):
                raise self._missing(about["base"])
            simulation.restore(snapshot)
            self._round, changed = snapshot.round, _changed(snapshot)
        self._check(stores, changed, about)
        records = self._records(about)
        self.models = about.get("models", {})
        self._forget(needed)
        return records

    def write(self, simulation: Simulation, records: list[Record], models: dict[str, Any]) -> None:
        """Commit the last round, what was reported since the commit before, and which models are kept."""
        checksum = write_segment(self._segment(self._segments), records)
        self._segments, self._history = self._segments + 1, _rolled(self._history, checksum)
        snapshot = simulation.snapshot()
        file = self._commit(snapshot.round)
        stores, changed = _stores(simulation), _changed(snapshot)
        others = {name: leaves.others(changed[name]) for name, leaves in stores.items()}
        history = {"segments": self._segments, "history": self._history, "models": models}
        digests = {
            f"rows.{name}.{leaf}": found
            for name, store in simulation.stores.items()
            for leaf, found in store.digests(*snapshot.rows[name]).items()
        }
        _write(file, snapshot, {"begun": self.begun, "base": self._round, "others": others} | history, digests)
        simulation.settle(snapshot)
        self._round = snapshot.round
        self._files.append(file)
        if len(self._files) > simulation.store.commits_kept:
            simulation.flush(snapshot.round)
            self._forget([file])

    def _needed(self, flushed: int | None) -> list[Path]:
        """The commits to repeat: the last, and with rows on disk all since these were made durable."""
        if flushed is None or not self._files:
            if flushed:
                raise self._missing(flushed)
            return self._files[-1:]
        first = self._commit(flushed)
        newer = [file for file in self._files if file.name > first.name]
        if not newer and flushed and first not in self._files:
            raise self._missing(flushed)
        return newer or self._files[-1:]

    def _check(self, stores: dict[str, Leaves], changed: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Refuse rows on disk that are not those of the last commit."""
        try:
            for name, leaves in stores.items():
                leaves.check(changed.get(name, torch.empty(0, dtype=torch.int64)), about["others"].get(name, {}))
        except DamagedError as error:
            if self._segment(about["segments"]).exists():  # a commit follows every segment, and rows that
                raise damaged(self._commit(self._round + 1), f"seems to be missing ({error})") from None
            raise

    def _records(self, about: dict[str, Any]) -> list[Record]:
        """What the counted segments hold; those beyond were written for a commit that never came to be."""
        records: list[Record] = []
        self._history = ""
        for number in range(about["segments"]):
            read, checksum = read_segment(self._segment(number))
            records += read
            self._history = _rolled(self._history, checksum)
        self._segments = about["segments"]
        if self._history != about["history"]:
            raise damaged(self.folder, "holds segments of records that its last commit does not know")
        beyond = sorted(set(self.folder.glob("segment-*")) - {self._segment(n) for n in range(self._segments)})
        if len(beyond) > 1:  # a commit follows every segment
            raise damaged(self.folder, f"lacks the commit that counts {beyond[0].name}")
        for file in beyond:
            file.unlink()
        return records

    def _forget(self, keep: Sequence[Path]) -> None:
        for file in self._files:
            if file not in keep:
                file.unlink()
        self._files = list(keep)

    def _missing(self, round: int) -> DamagedError:
        return damaged(self._commit(round), "is missing, and the rows of the clients cannot be had without it")

    def _commit(self, round: int) -> Path:
        return self.folder / f"commit-{round:08d}.safetensors"

    def _segment(self, number: int) -> Path:
        return self.folder / f"segment-{number:08d}.safetensors"


def _stores(simulation: Simulation) -> dict[str, Leaves]:
    """What lies on disk by rows, by the name of its folder."""
    return {name: store.files for name, store in simulation.stores.items() if store.files is not None}


def _changed(snapshot: Snapshot) -> dict[str, Tensor]:
    """Whose rows a snapshot holds, by the name of the store's folder."""
    return {name: who for name, (who, _) in snapshot.rows.items()}


def _rolled(history: str, checksum: str) -> str:
    return blake2b(f"{history} {checksum}".encode(), digest_size=16).hexdigest()


def _write(path: Path, snapshot: Snapshot, about: dict[str, Any], digests: Mapping[str, Digests]) -> None:
    tensors = under("server", snapshot.server) | {"spent": snapshot.spent}
    for store, (who, rows) in snapshot.rows.items():
        tensors |= {f"who.{store}": who} | under(f"rows.{store}", rows)
    write_tensors(path, tensors, {"round": snapshot.round} | about, digests)


def _read(path: Path, begun: str) -> tuple[Snapshot, dict[str, Any]]:
    tensors, about, _ = read_tensors(path)
    if about.get("begun") != begun:
        raise damaged(path, "is a commit of another run than start.json began, or of one with other settings")
    try:
        rows = {store: (who, within(f"rows.{store}", tensors)) for store, who in within("who", tensors).items()}
        if path.name != f"commit-{about['round']:08d}.safetensors":
            raise damaged(path, f"is the commit of round {about['round']}")
        if not all(isinstance(about[name], int) for name in ("base", "segments")):
            raise TypeError
        return Snapshot(about["round"], within("server", tensors), rows, tensors["spent"]), about
    except (LookupError, TypeError):
        raise damaged(path, "holds no commit that this version knows") from None
