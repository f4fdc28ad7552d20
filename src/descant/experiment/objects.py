"""Cells of a grid that are made of objects: a task, data and a method that a program has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from descant.catalog import brief, describe
from descant.data import FederatedData
from descant.draws import seed_of
from descant.errors import SettingError
from descant.experiment.callback import Callback
from descant.experiment.cells import Cell, Listening, otherwise
from descant.experiment.declaration import Settings, declared
from descant.experiment.grid import COMPARED, Grid, refuse_same_folders, refuse_unknown, rows_of
from descant.experiment.identity import of_parts, of_problem
from descant.experiment.journal import Journal, finished, unfinished
from descant.experiment.parts import PartOf
from descant.experiment.ready import Ready, ready
from descant.experiment.resume import go_on, recorded
from descant.experiment.run import Run
from descant.experiment.simulate import simulate
from descant.experiment.together import data_of, task_of
from descant.fingerprint import fingerprint
from descant.methods import Method
from descant.task import Task


@dataclass
class Problem:
    """What the runs of a comparison share: a task and data, or functions that make them of the run's seed."""

    task: Task | Callable[[int], Task]
    data: FederatedData | Callable[[int], FederatedData]
    _made: dict[int, tuple[Task, FederatedData]] = field(default_factory=dict)  # the last that were made
    _identities: dict[int, dict[str, Any]] = field(default_factory=dict)

    def of(self, seed: int) -> tuple[Task, FederatedData]:
        """Task and data of a run. A function is called with torch seeded as the run's seed says."""
        if seed not in self._made:
            task: Any = self.task
            data: Any = self.data
            if callable(data) and not isinstance(data, FederatedData):
                data = data(seed)
            if callable(task) and not isinstance(task, Task | torch.nn.Module):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed_of(seed, "model"))
                    task = task(seed)
            task, data = task_of(task), data_of(data)
            if len(self._made) > 1:
                del self._made[next(iter(self._made))]
            self._made[seed] = task, data
        return self._made[seed]

    def identity(self, seed: int) -> dict[str, Any]:
        """What the runs of a seed follow from, as hashes; `start` is that of the model that they start from."""
        if seed not in self._identities:
            task, data = self.of(seed)
            start = fingerprint(task.state().items())
            self._identities[seed] = of_problem(task, data) | {"task": task.describe(), "start": start}
        return self._identities[seed]


@dataclass(frozen=True, eq=False)
class FromObjects(Cell):
    """A run of a method on a task and data; `stops` is what callbacks that may stop it say of themselves."""

    problem: Problem
    method: Method
    settings: Settings
    stops: list[Any]
    at: Mapping[str, str]

    @property
    def label(self) -> str:
        return self.settings.label or self.method.name

    @property
    def key(self) -> str:
        """That of every cell, and a hash of the model that it starts from."""
        return f"{super().key}-{self.problem.identity(self.seed)['start'][:8]}"

    def identity(self) -> dict[str, Any]:
        problem = {name: told for name, told in self.problem.identity(self.seed).items() if name != "start"}
        parts = {name: getattr(self.settings, name) for name in ("aggregator", "codec", "downlink", "attacks")}
        return {
            "settings": self.settings.identity(),
            "method": brief(self.method),
            "problem": problem,
            "parts": of_parts(self.method, **parts),
            "stops": self.stops,
        }

    def apart_from_seed(self) -> dict[str, Any]:
        return self.settings.plain() | {"seed": None, "method": describe(self.method)}

    def check(self) -> Ready:
        return ready(*self._problem(), self.settings)

    def place(self, folder: Path) -> Path:
        """The folder itself. One that differs in the first parameters alone is refused: they were not repeated.

        So is one of a method whose defaults are others by now.
        """
        if fields := otherwise(folder, self.method):
            defaults = [name for name in fields if name != "revision"]
            told = "its method computed otherwise"
            if defaults:
                told = f"the default of {', '.join(defaults)} was another"
            raise SettingError(
                f"{folder.parent} holds {self} from when {told} ({folder.name}): choose another folder, and read "
                "that run by descant.load"
            )
        stem = folder.name.rpartition("-")[0]
        for other in folder.parent.glob(f"{stem}-*"):
            if other != folder and (finished(other) or unfinished(other)):
                raise SettingError(
                    f"{folder.parent} holds {self} from other first parameters of the same model ({other.name}). "
                    "To go on with it, call torch.manual_seed before the module is made, or hand in a function of "
                    "the seed that makes the task; to begin anew, choose another folder"
                )
        return folder

    def begun(self, folder: Path) -> bool:
        return super().begun(self.place(folder))

    def begin(self, out: Path | None, listening: Listening) -> Run:
        task, data, method = self._problem()
        call: dict[str, Any] = self._given() | vars(listening)
        return simulate(task, data, method, out=out, **call)

    def go_on(self, out: Path, listening: Listening) -> Run:
        journal = Journal.reopen(out)
        result = {name: value for name, value in self._given().items() if declared(Settings)[name].role != "how"}
        return go_on(journal, *self._problem(), recorded(journal.before, **result), **vars(listening))

    def _problem(self) -> tuple[Task, FederatedData, Method]:
        return (*self.problem.of(self.seed), self.method)

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in declared(Settings)}


def object_cell(
    problem: Problem, settings: Mapping[str, Any], at: Mapping[str, str], stops: list[Any]
) -> FromObjects:
    """The cell of a run on objects."""
    method = PartOf("methods").check(at["method"], settings["method"])
    own = {name: value for name, value in settings.items() if name != "method"}
    return FromObjects(problem, method, Settings.of(own, at), stops, at)


def grid_of(
    problem: Problem, values: Mapping[str, Any], folder: Path | None = None, callbacks: tuple[Callback, ...] = ()
) -> Grid:
    """The grid of a comparison on objects: `methods`, `seeds`, and settings of `simulate` that all runs share."""
    stops = Listening(callbacks=callbacks).identity()
    refuse_unknown(values, Settings, COMPARED)
    cells = [object_cell(problem, settings, at, stops) for settings, at in rows_of(values)]
    problem.of(cells[0].seed)  # what is no task and no data is refused before anything runs
    if folder is not None:
        refuse_same_folders(cells)
    return Grid(tuple(cells), folder, callbacks)
