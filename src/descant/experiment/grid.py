"""One grid of resumable cells, for every command that runs many."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from descant.engine import Record
from descant.errors import (
    BusyError,
    DamagedError,
    LeftOutWarning,
    MeanwhileError,
    NotTogetherError,
    SettingError,
    in_the_run,
    shown,
)
from descant.experiment.callback import Callback
from descant.experiment.cells import Cell, FromFile, Listening
from descant.experiment.declaration import Settings, declared
from descant.experiment.declaring import Declaration
from descant.experiment.journal import finished, unfinished
from descant.experiment.lock import at_work
from descant.experiment.ready import Ready
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings
from descant.files import claim_folder
from descant.methods import Method

_BLINK = 0.2  # seconds
_NAME = re.compile(r"\w+")
_TAKEN = {"method", "seed", "label"}  # what a comparison says of every cell itself
COMPARED = ("methods", "seeds")  # what a comparison has beside settings of its runs
_MOST = 10_000  # seeds


@dataclass(frozen=True)
class Grid:
    """Cells that are run one by one. One that is finished in `folder` is read back, one that is begun resumed.

    A finished cell counts only as long as its data are those of now; if they changed, it is run anew. Several
    processes may share a grid: each takes the next cell that no other is at work on.
    """

    cells: tuple[Cell, ...]
    folder: Path | None = None
    callbacks: tuple[Callback, ...] = ()
    refuse: Callable[[Cell, Ready], None] | None = None  # what this grid refuses of a cell that could begin
    whole: bool = False  # whether all cells are needed, so that one that is damaged is an error

    def run(self, progress: Callable[[Cell, Record], None] | None = None) -> Iterator[tuple[Cell, Run]]:
        """Every cell with its run, those that other processes are at work on last.

        One that is damaged is named (`LeftOutWarning`), and the others go on, unless the `whole` is needed. If
        other processes are still at work when all else is done, the error at the end (`BusyError`) names their
        cells. What a cell would refuse before it trains is refused before the first one is run.
        """
        self.check()
        if self.folder is not None and not self.folder.is_dir():  # finished cells may lie where nobody can write
            claim_folder(self.folder, "out")
        waiting, left_out, looked_again = list(self.cells), 0, False
        while waiting:
            busy: list[Cell] = []
            for cell in waiting:
                try:
                    run = self._read_or_run(cell, Listening(self._of(cell, progress), self.callbacks))
                except (BusyError, MeanwhileError):
                    busy.append(cell)
                    continue
                except DamagedError as error:
                    left_out += 1
                    if self.whole or left_out == len(self.cells):
                        raise
                    warnings.warn(LeftOutWarning(f"{cell} is left out: {error}"), stacklevel=2)
                    continue
                except SettingError as error:
                    raise _named(cell, error) from error
                except Exception as error:
                    in_the_run(error, str(cell))
                    raise
                yield cell, run
            if len(busy) == len(waiting):
                if looked_again:
                    raise BusyError(
                        f"other processes are still at work on {len(busy)} of {len(self.cells)} runs in "
                        f"{self.folder}: {', '.join(map(str, busy))}; call the same again when they are done"
                    )
                sleep(_BLINK)  # another process may only have had a look at the last of them
            looked_again = len(busy) == len(waiting)
            waiting = busy  # those that others were at work on may be done by now

    def check(self) -> None:
        """Refuse what a cell that nobody has begun would refuse; of those that differ in their seed, one is asked.

        A cell that is begun was checked then, and one that is finished is read whatever it would say today.
        """
        asked: list[Any] = []
        for cell in self.cells:
            with suppress(DamagedError):  # of this cell alone, which is left out when its turn comes
                if self.folder is not None and cell.begun(self.folder / cell.key):
                    continue
                if (told := cell.apart_from_seed()) in asked:
                    continue
                asked.append(told)
                self.ready(cell)

    def ready(self, cell: Cell) -> Ready:
        """A cell that could begin; what it refuses is said where the user wrote it."""
        try:
            with warnings.catch_warnings():  # the run itself will give them
                warnings.simplefilter("ignore")
                run = cell.check()
                if self.refuse is not None:
                    self.refuse(cell, run)
        except SettingError as error:
            raise _named(cell, error) from error
        return run

    def _read_or_run(self, cell: Cell, listening: Listening) -> Run:
        if self.folder is None:
            return cell.begin(None, listening)
        out = self.folder / cell.key
        done = finished(out)
        if not done and at_work(out):  # before the data are read
            raise BusyError(f"another process is at work on the run in {out}")
        try:
            out = cell.place(out)
            if finished(out):
                return Run.load(out)
            return cell.go_on(out, listening) if unfinished(out) else cell.begin(out, listening)
        except DamagedError as error:
            if done or not (finished(out) or at_work(out)):
                raise _advised(error, out) from error
            raise BusyError(f"another process has worked on the run in {out}") from None  # what is missing is its

    def _of(self, cell: Cell, progress: Callable[[Cell, Record], None] | None) -> Callable[[Record], None] | None:
        return None if progress is None else lambda record: progress(cell, record)


def _advised(error: DamagedError, folder: Path) -> DamagedError:
    """What can be done where a cell is damaged: a grid replaces no run, and runs a cell that is not there."""
    if not error.path.is_relative_to(folder):  # the data's own files
        return error
    return error.advised(f"take {folder} from a copy, or remove that folder and run the same again")


def _named(cell: Cell, error: SettingError) -> SettingError:
    """An error of one cell, with where the user wrote what it is about and what can be done there."""
    at, said = cell.at.get("method", f"methods.{cell.label}"), str(error)
    if said.startswith("method."):
        return SettingError(f"{at}.{said.removeprefix('method.')}")
    if isinstance(error, NotTogetherError):
        return SettingError(f"{at}: {error}; leave the method out{_or_else(cell, error.setting, at)}")
    name = _NAME.match(said)
    written = cell.at.get(name[0]) if name is not None else None
    if name is None or written is None or said.startswith(written):
        return error
    return SettingError(f"{written}{said[name.end() :]}")


def _or_else(cell: Cell, setting: str, at: str) -> str:
    """What can be done about a setting that does not go with the method at `at`, beside leaving the method out."""
    if (written := cell.at.get(setting)) is not None:
        return f", or change {written}"
    return f", or give it a value of its own, {at}.run.{setting}" if setting in declared(Settings) else ""


def comparison(values: Mapping[str, Any], folder: Path | None = None, callbacks: tuple[Callback, ...] = ()) -> Grid:
    """The grid of a comparison: settings of a run, with `methods` and `seeds` in the place of method and seed.

    `methods` is a list of specs, or a mapping from labels to specs; a spec's `run` holds settings of the run that
    hold for this method alone. `seeds` is a list, or how many.
    """
    stops = Listening(callbacks=callbacks).identity()
    refuse_unknown(values, RunSettings, COMPARED)
    cells = [file_cell(settings, at, stops) for settings, at in rows_of(values)]
    refuse_same_folders(cells)
    return Grid(tuple(cells), folder, callbacks)


def file_cell(settings: Mapping[str, Any], at: Mapping[str, str], stops: list[Any]) -> Cell:
    """The cell of a run whose settings a file holds."""
    return FromFile(RunSettings.of(settings, at), stops, at)


def refuse_unknown(
    values: Mapping[str, Any], runs: type[Declaration], own: Iterable[str], taken: Iterable[str] = ()
) -> None:
    """Refuse what is neither a setting of the `runs` of a grid nor one of its `own`, by name, with the nearest.

    What is `taken`, since the grid says it of every run itself, is refused with a reason elsewhere.
    """
    known = {*declared(runs), *own} - {*_TAKEN, *taken}
    for name in values:
        if name not in {*known, *_TAKEN, *taken}:
            raise runs.unknown(str(name), known)


def rows_of(values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The settings of every run of a comparison, a method and a seed each, and where the user wrote them."""
    common = dict(values)
    if "method" in common and "methods" not in common:
        raise SettingError(
            "'method' is a setting of a single run: run the file with `descant run`, or give a comparison 'methods'"
        )
    methods, seeds = common.pop("methods", None), common.pop("seeds", 1)
    for taken in sorted(_TAKEN & common.keys()):
        has = "labels its 'methods'" if taken == "label" else f"has '{taken}s'"
        raise SettingError(f"'{taken}' is a setting of a single run: a comparison {has}")
    for label, spec in _labelled(methods).items():
        own = spec.pop("run", {}) if isinstance(spec, dict) else {}
        if not isinstance(own, Mapping):
            raise SettingError(f"methods.{label}.run = {shown(own)}: it must hold settings of the run")
        at = {name: f"methods.{label}.run.{name}" for name in own}
        at |= {"method": f"methods.{label}", "label": "a label of 'methods'"}
        for taken in _TAKEN & own.keys():
            raise SettingError(f"methods.{label}.run.{taken}: '{taken}' is the comparison's own")
        for seed in _seeds(seeds):
            yield {**common, **own, "method": spec, "seed": seed, "label": label}, at


def _seeds(seeds: Any) -> list[int]:
    """The seeds of a comparison, from a list or from how many there are."""
    if isinstance(seeds, int) and not isinstance(seeds, bool) and 1 <= seeds <= _MOST:
        return list(range(seeds))
    if not isinstance(seeds, list | tuple | range) or not seeds:
        raise SettingError(f"seeds = {shown(seeds)}: it must be a list of seeds, or how many (1 to {_MOST})")
    allowed = declared(RunSettings)["seed"].allowed
    checked = [allowed.check(f"seeds[{i}]", seed) for i, seed in enumerate(seeds)]
    for seed in checked:
        if checked.count(seed) > 1:
            raise SettingError(f"seeds = {shown(seeds)}: {seed} stands twice, and would be one run counted as two")
    return checked


def refuse_same_folders(cells: Sequence[Cell]) -> None:
    """Refuse labels that read the same in a folder's name, where nothing else tells the cells apart."""
    found: dict[str, str] = {}
    for cell in cells:
        if (other := found.setdefault(cell.key, cell.label)) != cell.label:
            raise SettingError(
                f"methods: '{other}' and '{cell.label}' are the same runs, and their folders' names would be, too: "
                "give them labels that differ in letters or digits, or leave one out"
            )


def _labelled(methods: Any) -> dict[str, dict[str, Any] | Method]:
    """The methods by label, objects as they are and the others as specs; a list is labelled by name."""
    if isinstance(methods, Mapping):
        pairs = [(str(label), spec if spec is not None else label) for label, spec in methods.items()]
    elif isinstance(methods, list | tuple):
        pairs = [(_name(spec), spec) for spec in methods]
    else:
        raise SettingError("a comparison needs 'methods': a list of them, or a mapping from labels to methods")
    labelled: dict[str, dict[str, Any] | Method] = {}
    for label, spec in pairs:
        if label in labelled:
            raise SettingError(
                f"methods: '{label}' stands twice; give labels, as in {{my label: {{name: {label}}}}}"
            )
        if isinstance(spec, Method):
            labelled[label] = spec
            continue
        if isinstance(spec, type):
            raise SettingError(f"methods.{label} is a class: make an object of it, as in {spec.__name__}()")
        if not isinstance(spec, str | Mapping):
            raise SettingError(
                f"methods.{label} = {shown(spec)}: it must be a name, or a mapping with a name and fields"
            )
        labelled[label] = {"name": spec} if isinstance(spec, str) else dict(spec)
    if not labelled:
        raise SettingError("methods: the list is empty")
    return labelled


def _name(spec: Any) -> str:
    if isinstance(spec, Method | type):
        return str(getattr(spec, "name", spec))
    return str(spec.get("name")) if isinstance(spec, Mapping) else str(spec)
