"""One grid of resumable cells, for every command that runs many."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from json import dumps, loads
from pathlib import Path
from typing import Any

from descant.data.errors import DataError
from descant.engine import Record
from descant.errors import DamagedError, LeftOutWarning, SettingError, shown
from descant.experiment.datafiles import stamp
from descant.experiment.declaration import declared
from descant.experiment.folder import RUN, START
from descant.experiment.journal import Journal, finished, unfinished
from descant.experiment.resume import resume
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings
from descant.sealed import read_json, write_json

_TAKEN = {"method", "seed", "label"}  # what a comparison says of every cell itself
_MOST = 10_000  # seeds
_FILES = "files.json"  # in a cell's folder: the files of its data, as `stamp` saw them


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    settings: RunSettings

    @property
    def label(self) -> str:
        """The row of a table that the run belongs to."""
        return self.settings.title

    @property
    def key(self) -> str:
        """The name of the cell's folder: its label and seed to read, and a hash of what its result follows from.

        How the run is carried out (mode, device, chunk, threads, store, commit) does not belong to it, and neither
        does a setting that has its default, here or inside a method: a setting that is added renames no cell.
        """
        text = dumps(self.settings.identity(), sort_keys=True)
        slug = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")
        return f"{slug}-seed{self.settings.seed}-{blake2b(text.encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True)
class Grid:
    """Cells that are run one by one. One that is finished in `folder` is read back, one that is begun resumed.

    A finished cell counts only as long as its data are those of now; if they changed, it is run anew.
    """

    cells: tuple[Cell, ...]
    folder: Path | None = None

    def run(self, progress: Callable[[Cell, Record], None] | None = None) -> Iterator[tuple[Cell, Run]]:
        """Every cell with its run. One that is damaged is named (`LeftOutWarning`), and the others go on."""
        left_out = []
        for cell in self.cells:
            try:
                run = self._read_or_run(cell, self._of(cell, progress))
            except DamagedError as error:
                left_out.append(error)
                if len(left_out) == len(self.cells):
                    raise
                warnings.warn(LeftOutWarning(f"'{cell.label}' is left out: {error}"), stacklevel=2)
                continue
            except SettingError as error:
                if not str(error).startswith("method."):
                    raise
                raise SettingError(f"methods.{cell.label}.{str(error).removeprefix('method.')}") from error
            yield cell, run

    def _read_or_run(self, cell: Cell, progress: Callable[[Record], None] | None) -> Run:
        if self.folder is None:
            return cell.settings.execute(progress=progress)
        out = _place(cell, self.folder / cell.key)
        if finished(out):
            return Run.load(out)
        files = stamp(cell.settings.data_spec)
        if unfinished(out):
            own = Journal.reopen(out).settings == loads(dumps(cell.settings.plain()))  # and not a stranger's
            run = resume(out, allow_imports=own, progress=progress)
        else:
            run = cell.settings.execute(out, progress=progress)
        write_json(out / _FILES, {"files": files})
        return run

    def _of(self, cell: Cell, progress: Callable[[Cell, Record], None] | None) -> Callable[[Record], None] | None:
        return None if progress is None else lambda record: progress(cell, record)


def _place(cell: Cell, out: Path) -> Path:
    """The folder of a cell: `out`, or beside it where that holds a run on data that are others by now.

    As long as no file of the data has another size or time, they are the same; if not, they are read and compared.
    """
    if not finished(out) and not unfinished(out):
        return out
    files = stamp(cell.settings.data_spec)
    if files is not None and (out / _FILES).is_file() and read_json(out / _FILES)[0].get("files") == files:
        return out
    try:
        now = cell.settings.federated_data().fingerprint
    except (DataError, OSError):
        return out  # the files are gone, and the run is what is left
    about = read_json(out / (RUN if finished(out) else START))[0]
    then = about.get("config", {}).get("data", {}).get("fingerprint")
    if then in (now, None):  # the first format did not say
        with suppress(OSError):  # a folder that can only be read is compared the next time, too
            write_json(out / _FILES, {"files": files})
        return out
    return out.with_name(f"{out.name}-{now[:8]}")


def comparison(values: Mapping[str, Any], folder: Path | None = None) -> Grid:
    """The grid of a comparison: settings of a run, with `methods` and `seeds` in the place of method and seed.

    `methods` is a list of specs, or a mapping from labels to specs; a spec's `run` holds settings of the run that
    hold for this method alone. `seeds` is a list, or how many.
    """
    common = dict(values)
    if "method" in common and "methods" not in common:
        raise SettingError(
            "'method' is a setting of a single run: run the file with `descant run`, or give a comparison 'methods'"
        )
    methods, seeds = common.pop("methods", None), common.pop("seeds", 1)
    for taken in sorted(_TAKEN & common.keys()):
        has = "labels its 'methods'" if taken == "label" else f"has '{taken}s'"
        raise SettingError(f"'{taken}' is a setting of a single run: a comparison {has}")
    cells = []
    for label, spec in _labelled(methods).items():
        own = spec.pop("run", {})
        if not isinstance(own, Mapping):
            raise SettingError(f"methods.{label}.run = {shown(own)}: it must hold settings of the run")
        at = {name: f"methods.{label}.run.{name}" for name in own}
        at |= {"method": f"methods.{label}", "label": "a label of 'methods'"}
        for taken in _TAKEN & own.keys():
            raise SettingError(f"methods.{label}.run.{taken}: '{taken}' is the comparison's own")
        for seed in _seeds(seeds):
            settings = {**common, **own, "method": spec, "seed": seed, "label": label}
            cells.append(Cell(RunSettings.of(settings, at)))
    _refuse_same_folders(cells)
    return Grid(tuple(cells), folder)


def _seeds(seeds: Any) -> list[int]:
    """The seeds of a comparison, from a list or from how many there are."""
    if isinstance(seeds, int) and not isinstance(seeds, bool) and 1 <= seeds <= _MOST:
        return list(range(seeds))
    if not isinstance(seeds, list) or not seeds:
        raise SettingError(f"seeds = {shown(seeds)}: it must be a list of seeds, or how many (1 to {_MOST})")
    allowed = declared(RunSettings)["seed"].allowed
    checked = [allowed.check(f"seeds[{i}]", seed) for i, seed in enumerate(seeds)]
    for seed in checked:
        if checked.count(seed) > 1:
            raise SettingError(f"seeds = {shown(seeds)}: {seed} stands twice, and would be one run counted as two")
    return checked


def _refuse_same_folders(cells: list[Cell]) -> None:
    """Refuse labels that read the same in a folder's name, where nothing else tells the cells apart."""
    found: dict[str, str] = {}
    for cell in cells:
        if (other := found.setdefault(cell.key, cell.label)) != cell.label:
            raise SettingError(
                f"methods: '{other}' and '{cell.label}' are the same runs, and their folders' names would be, too: "
                "give them labels that differ in letters or digits, or leave one out"
            )


def _labelled(methods: Any) -> dict[str, dict[str, Any]]:
    """The specs of the methods by label; a list is labelled by name."""
    if isinstance(methods, Mapping):
        pairs = [(str(label), spec if spec is not None else label) for label, spec in methods.items()]
    elif isinstance(methods, list):
        pairs = [(_name(spec), spec) for spec in methods]
    else:
        raise SettingError("a comparison needs 'methods': a list of specs, or a mapping from labels to specs")
    labelled: dict[str, dict[str, Any]] = {}
    for label, spec in pairs:
        if label in labelled:
            raise SettingError(
                f"methods: '{label}' stands twice; give labels, as in {{my label: {{name: {label}}}}}"
            )
        if not isinstance(spec, str | Mapping):
            raise SettingError(
                f"methods.{label} = {shown(spec)}: it must be a name, or a mapping with a name and fields"
            )
        labelled[label] = {"name": spec} if isinstance(spec, str) else dict(spec)
    if not labelled:
        raise SettingError("methods: the list is empty")
    return labelled


def _name(spec: Any) -> str:
    return str(spec.get("name")) if isinstance(spec, Mapping) else str(spec)
