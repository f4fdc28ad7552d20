"""The journal of a run: what is needed to go on with it, until it is finished.

DIR/start.json     what the run follows from: there from the first moment
DIR/journal/       commits, and segments of records
DIR/clients/       the clients' state, where it is memory-mapped; it stays
DIR/held/, copies/ what the server holds and remembers of every client, likewise
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree
from time import monotonic
from types import TracebackType
from typing import Any, Self

import torch

from descant.engine import Collapse, Record, RoundRecord, Simulation
from descant.errors import ResumeError, SettingError
from descant.experiment.commits import Commits
from descant.experiment.history import History
from descant.experiment.lock import Lock
from descant.files import read_json, sweep, sync, write
from descant.version import __version__

_FORMAT = 1
_PAUSE, _SHARE = 10.0, 20  # seconds between commits, and at least so many times what the last one took


class Journal:
    """Records a run in `folder` while it goes on; `with` it, nobody else does.

    `settings` are those of a settings file, from which the run can be built again.
    """

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.folder, self.settings = folder, settings
        self.started: dict[str, Any] | None = None  # what start.json said, for a run that goes on
        self._begun = False  # whether a new run has taken the place of what lay here
        self._every: int | None = None
        self._records: list[Record] = []
        self._committed, self._took = monotonic(), 0.0

    @classmethod
    def reopen(cls, folder: Path) -> Self:
        """The journal of an unfinished run, to go on with it."""
        if finished(folder):
            raise ResumeError(f"{folder} holds a finished run: there is nothing to resume")
        if not unfinished(folder):
            raise ResumeError(f"{folder} holds no run: there is no start.json in it")
        journal = cls(folder)
        journal.started = started = read_json(folder / "start.json")
        if started["format"] != _FORMAT:
            raise ResumeError(f"{folder} is in format {started['format']}, and this version resumes {_FORMAT}")
        here = {"descant": __version__, "torch": torch.__version__}
        for name, version in here.items():
            if (then := started["config"]["versions"][name]) != version:
                raise ResumeError(
                    f"{folder} was begun with {name} {then} and this is {version}, whose numbers may differ: "
                    f"install {name} {then} to resume, or begin anew with overwrite"
                )
        journal.settings = started["config"].get("settings")
        return journal

    def __enter__(self) -> Self:
        self._lock = Lock(self.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        nothing = self._begun and not list(self._work.glob("commit-*"))
        if nothing and isinstance(error, Exception):  # a mistake, found before there was anything to go on from
            self._remove()
            self._forget()
        self._lock.release()

    @property
    def before(self) -> dict[str, Any]:
        """The config that a resumed run was begun with."""
        assert self.started is not None, "only a journal that was reopened has one"
        config: dict[str, Any] = self.started["config"]
        return config

    @property
    def clients(self) -> Path:
        """The folder of a memory-mapped run's clients."""
        return self.folder / "clients"

    @property
    def _work(self) -> Path:
        return self.folder / "journal"

    def begin(self, config: dict[str, Any], fingerprints: dict[str, str]) -> dict[str, Any]:
        """Note what a new run follows from, or check that a resumed one follows from it too; return its config."""
        if self.settings is not None:
            config = config | {"settings": self.settings}
        self._every = config["commit"]
        start = {"format": _FORMAT, "config": config, "fingerprints": fingerprints}
        if self.started is None:
            self._clear()
            self._begun = True
            self._work.mkdir()
            text = json.dumps(start, indent=2)  # with Infinity where it stands: it is read back by Python only
            write(self.folder / "start.json", lambda temporary: temporary.write_text(text + "\n"))
            return config
        self._compare(json.loads(json.dumps(start)))
        sweep(self.folder)
        sweep(self._work)
        return self.before

    def restore(self, simulation: Simulation, history: History) -> None:
        """Bring a simulation and its history to where the last commit left them."""
        self._commits = Commits(self._work)
        for record in self._commits.restore(simulation):
            history.add(record)
        self._committed = monotonic()

    def add(self, record: Record, simulation: Simulation) -> None:
        """Keep a record, and commit where it is time to.

        A memory-mapped run commits every round. Otherwise it is every so many rounds as was asked for, or by
        default when 10 seconds have passed since the last commit, and 20 times as long as that one took.
        """
        self._records.append(record)
        if isinstance(record, RoundRecord | Collapse) and self._due(simulation):
            began = monotonic()
            self._commits.write(simulation, self._records)
            self._records = []
            self._committed = monotonic()
            self._took = self._committed - began

    def finish(self) -> None:
        """The run is saved: what was kept for going on with it can go."""
        self._remove()

    def _due(self, simulation: Simulation) -> bool:
        if simulation.store.holds_back:
            return True
        if self._every is not None:
            return simulation.round % self._every == 0
        return monotonic() - self._committed > max(_PAUSE, _SHARE * self._took)

    def _clear(self) -> None:
        """Remove the run that lay here: first what makes it look like one."""
        (self.folder / "run.json").unlink(missing_ok=True)
        sync(self.folder)
        self._remove()
        self._forget()
        sweep(self.folder)

    def _remove(self) -> None:
        (self.folder / "start.json").unlink(missing_ok=True)
        sync(self.folder)
        rmtree(self._work, ignore_errors=True)

    def _forget(self) -> None:
        """Remove what was mapped into memory."""
        for folder in (self.clients, self.folder / "held", self.folder / "copies"):
            rmtree(folder, ignore_errors=True)

    def _compare(self, start: dict[str, Any]) -> None:
        assert self.started is not None
        for what, now in start["fingerprints"].items():
            if self.started["fingerprints"][what] != now:
                raise ResumeError(f"{self.folder} was begun with {_THINGS[what]}: hand in the same to resume")
        then = self.before
        for field, now in start["config"].items():
            if field not in ("execution", "versions", "settings") and then.get(field) != now:
                raise ResumeError(
                    f"{self.folder} was begun with {field} = {then.get(field)!r}, and this is {now!r}: "
                    "resume with the same, or begin anew with overwrite"
                )


_THINGS = {"data": "other data", "model": "another model (its parameters or buffers differ)"}


def claim(out: str | Path, overwrite: bool) -> Path:
    """The folder for a run, made before the work begins, so that a bad path costs nothing."""
    folder = Path(out)
    if finished(folder) and not overwrite:
        raise SettingError(f"out = '{folder}' already holds a run: choose another folder, or set overwrite")
    if unfinished(folder) and not overwrite:
        raise SettingError(
            f"out = '{folder}' holds an unfinished run: go on with it (descant resume {folder}), "
            "or begin anew with overwrite (--overwrite)"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"out = '{folder}' cannot be made: {error}") from error
    return folder


def finished(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    return (folder / "run.json").is_file()


def unfinished(folder: Path) -> bool:
    """Whether a folder holds a run that was begun and not finished."""
    return (folder / "start.json").is_file() and not finished(folder)
