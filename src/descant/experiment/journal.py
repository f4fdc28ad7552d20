"""The journal of a run: what is needed to go on with it, until it is finished.

DIR/start.json           what the run follows from: there from the first moment
DIR/start.safetensors    the model that it started from; it stays
DIR/journal/             commits, and segments of records
DIR/clients/             the clients' state, where it lies on disk; it stays
DIR/held/, DIR/copies/   what the server holds and remembers of every client, likewise
DIR/models/              the models of the best round so far, and in the end of the last; they stay
DIR/.descant             says that descant made these; without it, what lies there is the user's and stays
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import randbits
from time import monotonic
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from descant.engine import Collapse, Record, RoundRecord, Simulation
from descant.errors import MeanwhileError, ResumeError, SettingError
from descant.experiment.begun import THINGS, refuse_other, refuse_unknown
from descant.experiment.commits import Commits
from descant.experiment.folder import (
    CLIENTS,
    JOURNAL,
    MODEL,
    RUN,
    START,
    headless,
    mark,
    refuse_foreign,
    remove_journal,
    remove_run,
    replaced,
    sweep,
    unmark,
)
from descant.experiment.goingon import resume_command
from descant.experiment.history import History
from descant.experiment.keeping import Keeper
from descant.experiment.lock import Lock
from descant.experiment.ours import begins_a_run
from descant.files import claim_folder, make_folder
from descant.sealed import damaged, read_json, read_tensors, write_json, write_tensors
from descant.state.leaves import ABOUT
from descant.task import Task
from descant.version import __version__

FORMAT = 2
_PAUSE, _SHARE = 10.0, 20  # seconds between commits, and at least so many times what the last one took


class Journal:
    """Records a run in `folder` while it goes on; `with` it, nobody else does.

    `settings` are those of a settings file, from which the run can be built again.
    """

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, *, overwrite: bool = False) -> None:
        self.folder, self.settings, self._overwrite = folder, settings, overwrite
        self._mark = ""  # the checksum of start.json, which every commit repeats
        self._model: dict[str, Tensor] = {}
        self.started: dict[str, Any] | None = None  # the content of start.json, if an interrupted run is resumed
        self._secret = 0  # what parties draw in private follows from it, where the run does not say from what
        self._begun = False  # whether a new run was begun here, and whatever lay here before was removed
        self._every: int | None = None
        self._records: list[Record] = []
        self._committed, self._took = monotonic(), 0.0

    @classmethod
    def claim(cls, out: str | Path, overwrite: bool, settings: dict[str, Any] | None = None) -> Self:
        """The journal of a new run, its folder made before the work begins, so that a bad path costs nothing."""
        if out == "":  # to `Path`, it is the current folder
            raise SettingError("out = '': it must be the path of a folder, or '.' for the current one")
        folder = Path(out)
        refuse_foreign(folder)
        _refuse_taken(folder, overwrite)
        claim_folder(folder, "out")
        return cls(folder, settings, overwrite=overwrite)

    @classmethod
    def reopen(cls, folder: Path) -> Self:
        """The journal of an unfinished run, to go on with it."""
        if finished(folder):
            raise ResumeError(f"{folder} holds a finished run: there is nothing to resume")
        if (lost := headless(folder)) is not None:
            raise lost
        if not unfinished(folder):
            missing = "there is no start.json in it" if folder.is_dir() else "there is no such folder"
            raise ResumeError(f"{folder} holds no run: {missing}")
        journal = cls(folder)
        journal.started, journal._mark = started, _ = read_json(folder / START)
        if (then := started.get("format")) != FORMAT:
            raise ResumeError(
                f"{folder} was begun in format {then}, and this version goes on with format {FORMAT}: "
                "finish it with the version of descant that began it, or begin anew with overwrite"
            )
        refuse_unknown(folder / START, started)
        here = {"descant": __version__, "torch": torch.__version__}
        for name, version in here.items():
            if (then := started["config"]["versions"].get(name)) != version:
                raise ResumeError(
                    f"{folder} was begun with {name} {then} and this is {version}, whose numbers may differ: "
                    f"install {name} {then} to resume, or begin anew with overwrite"
                )
        journal.settings = started["config"].get("settings")
        return journal

    def __enter__(self) -> Self:
        self._lock = Lock(self.folder)
        try:
            self._look_again()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, SettingError):  # there was nothing to refuse at the first look
                raise MeanwhileError(str(error)) from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        nothing = self._begun and not finished(self.folder) and not list(self._work.glob("commit-*"))
        try:
            if nothing and isinstance(error, Exception):  # a mistake, before there was anything to go on from
                with suppress(OSError):  # the first error is the one to tell
                    mark(self.folder)  # should this be cut off, nobody has lost what is left
                    remove_run(self.folder)
                    unmark(self.folder)
        finally:
            self._lock.release()

    @property
    def before(self) -> dict[str, Any]:
        """The config that a resumed run was begun with."""
        assert self.started is not None, "only a journal that was reopened has one"
        config: dict[str, Any] = self.started["config"]
        return config

    @property
    def secret(self) -> int:
        """What private draws follow from in a run that does not say from what; a resumed run has the same."""
        secret: int = self._secret if self.started is None else self.started["secret"]
        return secret

    @property
    def clients(self) -> Path:
        """The folder of a run on disk's clients."""
        return self.folder / CLIENTS

    @property
    def _work(self) -> Path:
        return self.folder / JOURNAL

    def start(self, task: Task) -> Task:
        """The task, from the model that the run started from: the task's own, or the one that the folder keeps."""
        if self.started is None:
            self._model = task.state()
            return task
        tensors, _, checksum = read_tensors(self.folder / MODEL)
        if checksum != self.started["model"]:
            raise damaged(self.folder / MODEL, "is the first model of another run")
        now = task.state()
        if {n: (t.shape, t.dtype) for n, t in now.items()} != {n: (t.shape, t.dtype) for n, t in tensors.items()}:
            raise ResumeError(f"{self.folder} was begun with {THINGS['model']}: hand in the same to resume")
        return task.starting_at(tensors)

    def begin(self, config: dict[str, Any], fingerprints: dict[str, str]) -> dict[str, Any]:
        """Note what a new run follows from, or check that a resumed one follows from it too; return its config."""
        if self.settings is not None:
            config = config | {"settings": self.settings}
        self._every = config["commit"]
        if self.started is not None:
            refuse_other(self.folder, self.started, config, fingerprints)
            lost = config["store"] == "disk" and any(self._work.glob("commit-*"))
            if lost and not (self.clients / ABOUT).exists():  # it would be made anew, empty
                raise damaged(self.clients / ABOUT, "is missing")
            sweep(self.folder)
            replaced(self.folder)  # should it have been cut off before it said so
            return self.before
        mark(self.folder)
        remove_run(self.folder)
        self._begun = True
        make_folder(self._work)
        model = write_tensors(self.folder / MODEL, self._model, {})
        self._secret = randbits(62)
        start = {"format": FORMAT, "config": config, "fingerprints": fingerprints, "model": model}
        start["secret"] = self._secret
        self._mark = write_json(self.folder / START, start)
        replaced(self.folder)
        return config

    def restore(self, simulation: Simulation, history: History, keeper: Keeper) -> list[Record]:
        """Bring a simulation, its history and the models that are kept to where the last commit left them.

        Returns what was reported until then.
        """
        self._commits, self._keeper = Commits(self._work, self._mark), keeper
        before = self._commits.restore(simulation)
        for record in before:
            history.add(record)
        keeper.restore(self._commits.models)
        self._committed = monotonic()
        return before

    def add(self, record: Record, simulation: Simulation) -> None:
        """Keep a record, and commit where it is time to.

        A run on disk commits every round. Otherwise it is every so many rounds as was asked for, or by
        default when 10 seconds have passed since the last commit, and 20 times as long as that one took.
        """
        self._records.append(record)
        if isinstance(record, RoundRecord | Collapse) and self._due(simulation):
            began = monotonic()
            self._commits.write(simulation, self._records, self._keeper.commit())
            self._keeper.settle()
            self._records = []
            self._committed = monotonic()
            self._took = self._committed - began

    def finish(self) -> None:
        """The run is saved: what was kept for going on with it can go."""
        remove_journal(self.folder)

    def _look_again(self) -> None:
        """Another process may have run here between the first look at the folder and the lock."""
        refuse_foreign(self.folder)
        if self.started is None:
            _refuse_taken(self.folder, self._overwrite)
        elif type(self).reopen(self.folder).started != self.started:
            raise ResumeError(
                f"another process has begun another run in {self.folder}: look at it, and resume again"
            )

    def _due(self, simulation: Simulation) -> bool:
        if simulation.store.holds_back:
            return True
        if self._every is not None:
            return simulation.round % self._every == 0
        return monotonic() - self._committed > max(_PAUSE, _SHARE * self._took)


def _refuse_taken(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds a run already."""
    if finished(folder) and not overwrite:
        raise SettingError(f"out = '{folder}' already holds a run: choose another folder, or set overwrite")
    if unfinished(folder) and not overwrite:
        raise SettingError(
            f"out = '{folder}' holds an unfinished run: go on with it ({resume_command(folder)}), "
            "or begin anew with overwrite (--overwrite)"
        )
    if (lost := headless(folder)) is not None and not overwrite:
        raise lost


def finished(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    return _is_a_run(folder / RUN)


def unfinished(folder: Path) -> bool:
    """Whether a folder holds a run that was begun and not finished."""
    return _is_a_run(folder / START) and not finished(folder)


def _is_a_run(path: Path) -> bool:
    """Whether a file by the name of ours is there, and no other program's."""
    return path.is_file() and begins_a_run(path)
