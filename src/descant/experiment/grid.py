"""One grid of resumable cells, for every command that runs many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from json import dumps, loads
from pathlib import Path
from typing import Any

from descant.engine import Record
from descant.errors import SettingError
from descant.experiment.datafiles import stamp
from descant.experiment.declaration import declared
from descant.experiment.journal import Journal, finished, unfinished
from descant.experiment.resume import resume
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings
from descant.sealed import read_json, write_json

_TAKEN = {"method", "seed", "label"}  # what a comparison says of every cell itself
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
        for cell in self.cells:
            out = self.folder / cell.key if self.folder is not None else None
            if out is not None and finished(out):
                run = Run.load(out)
                if _current(cell, run, out):
                    yield cell, run
                    continue
            files = stamp(cell.settings.data_spec)
            run = self._go_on(cell, out, self._of(cell, progress))
            if out is not None:
                write_json(out / _FILES, {"files": files})
            yield cell, run

    def _go_on(self, cell: Cell, out: Path | None, progress: Callable[[Record], None] | None) -> Run:
        stale = out is not None and finished(out)
        if out is not None and unfinished(out):
            own = Journal.reopen(out).settings == loads(dumps(cell.settings.plain()))  # and not a stranger's
            return resume(out, allow_imports=own, progress=progress)
        return cell.settings.execute(out, overwrite=stale, progress=progress)

    def _of(self, cell: Cell, progress: Callable[[Cell, Record], None] | None) -> Callable[[Record], None] | None:
        return None if progress is None else lambda record: progress(cell, record)


def _current(cell: Cell, run: Run, out: Path) -> bool:
    """Whether a finished run was made with the data that its settings name now.

    As long as no file of theirs has another size or time, that is so; otherwise the data are read and compared.
    """
    files = stamp(cell.settings.data_spec)
    if files is not None and (out / _FILES).is_file() and read_json(out / _FILES)[0].get("files") == files:
        return True
    if run.config["data"].get("fingerprint") != cell.settings.federated_data().fingerprint:
        return False
    with suppress(OSError):  # a folder that can only be read is compared the next time, too
        write_json(out / _FILES, {"files": files})
    return True


def comparison(values: Mapping[str, Any], folder: Path | None = None) -> Grid:
    """The grid of a comparison: settings of a run, with `methods` and `seeds` in the place of method and seed.

    `methods` is a list of specs, or a mapping from labels to specs; a spec's `run` holds settings of the run that
    hold for this method alone. `seeds` is a list, or how many.
    """
    common = dict(values)
    methods, seeds = common.pop("methods", None), common.pop("seeds", 1)
    for taken in sorted(_TAKEN & common.keys()):
        has = "labels its 'methods'" if taken == "label" else f"has '{taken}s'"
        raise SettingError(f"'{taken}' is a setting of a single run: a comparison {has}")
    cells = []
    for label, spec in _labelled(methods).items():
        own = spec.pop("run", {})
        if not isinstance(own, Mapping):
            raise SettingError(f"methods.{label}.run = {own!r}: it must hold settings of the run")
        at = {"method": f"methods.{label}"} | {name: f"methods.{label}.run.{name}" for name in own}
        for taken in _TAKEN & own.keys():
            raise SettingError(f"methods.{label}.run.{taken}: '{taken}' is the comparison's own")
        for seed in _seeds(seeds):
            settings = {**common, **own, "method": spec, "seed": seed, "label": label}
            cells.append(Cell(RunSettings.of(settings, at)))
    _refuse_same_folders(cells)
    return Grid(tuple(cells), folder)


def _seeds(seeds: Any) -> list[int]:
    """The seeds of a comparison, from a list or from how many there are."""
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1:
        return list(range(seeds))
    if not isinstance(seeds, list) or not seeds:
        raise SettingError(f"seeds = {seeds!r}: it must be a list of seeds, or how many (1 or more)")
    allowed = declared(RunSettings)["seed"].allowed
    checked = [allowed.check(f"seeds[{i}]", seed) for i, seed in enumerate(seeds)]
    for seed in checked:
        if checked.count(seed) > 1:
            raise SettingError(f"seeds = {seeds!r}: {seed} stands twice, and would be one run counted as two")
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
                f"methods.{label} = {spec!r}: it must be a name, or a mapping with a name and fields"
            )
        labelled[label] = {"name": spec} if isinstance(spec, str) else dict(spec)
    if not labelled:
        raise SettingError("methods: the list is empty")
    return labelled


def _name(spec: Any) -> str:
    return str(spec.get("name")) if isinstance(spec, Mapping) else str(spec)
