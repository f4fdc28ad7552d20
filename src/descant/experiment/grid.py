"""One grid of resumable cells, for every command that runs many."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any

from descant.data.errors import DataError
from descant.engine import Record
from descant.errors import DamagedError, LeftOutWarning, SettingError
from descant.experiment.folder import RUN
from descant.experiment.journal import Journal, finished, unfinished
from descant.experiment.resume import resume
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings
from descant.sealed import read_json


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    settings: RunSettings

    @property
    def label(self) -> str:
        """The row of a table that the run belongs to."""
        return self.settings.label or str(self.settings.method["name"])

    @property
    def key(self) -> str:
        """The name of the cell's folder: readable, and another one as soon as any setting is another."""
        text = dumps(self.settings.model_dump(mode="json"), sort_keys=True)
        slug = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")
        return f"{slug}-seed{self.settings.seed}-{blake2b(text.encode(), digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Grid:
    """Cells that are run one by one. One that is finished in `folder` is read back, one that is begun resumed."""

    cells: tuple[Cell, ...]
    folder: Path | None = None

    def run(self, progress: Callable[[Cell, Record], None] | None = None) -> Iterator[tuple[Cell, Run]]:
        """Every cell with its run. One that is damaged is named (`LeftOutWarning`), and the others go on."""
        left_out = []
        for cell in self.cells:
            out = self.folder / cell.key if self.folder is not None else None
            try:
                run = self._read_or_run(cell, out, self._of(cell, progress))
            except DamagedError as error:
                left_out.append(error)
                if len(left_out) == len(self.cells):
                    raise
                warnings.warn(LeftOutWarning(f"'{cell.label}' is left out: {error}"), stacklevel=2)
                continue
            yield cell, run

    def _read_or_run(self, cell: Cell, out: Path | None, progress: Callable[[Record], None] | None) -> Run:
        if out is not None and finished(out):
            _refuse_other_data(cell, out)
            return Run.load(out)
        if out is not None and unfinished(out):
            own = Journal.reopen(out).settings == cell.settings.model_dump(mode="json")  # and not a stranger's
            return resume(out, allow_imports=own, progress=progress)
        return cell.settings.execute(out, progress=progress)

    def _of(self, cell: Cell, progress: Callable[[Cell, Record], None] | None) -> Callable[[Record], None] | None:
        return None if progress is None else lambda record: progress(cell, record)


def _refuse_other_data(cell: Cell, out: Path) -> None:
    """Refuse a finished cell whose data are others by now: beside it, a new one would not be comparable."""
    then = read_json(out / RUN)[0].get("fingerprints", {}).get("data")
    if then is None:
        return  # of the first format, which did not say
    try:
        now = cell.settings.federated_data().fingerprint
    except (DataError, OSError):
        return  # the files are gone, and the run is what is left
    if now != then:
        raise SettingError(
            f"{out} is finished, and its data are others now: put them back, or remove the folder to run it anew"
        )


def comparison(values: Mapping[str, Any], folder: Path | None = None) -> Grid:
    """The grid of a comparison: settings of a run, with `methods` and `seeds` in the place of method and seed.

    `methods` is a list of specs, or a mapping from labels to specs; a spec's `run` holds settings of the run that
    hold for this method alone. `seeds` is a list, or how many.
    """
    common = dict(values)
    methods, seeds = common.pop("methods", None), common.pop("seeds", 1)
    for taken in ("method", "seed", "label"):
        if taken in common:
            has = "labels its 'methods'" if taken == "label" else f"has '{taken}s'"
            raise SettingError(f"'{taken}' is a setting of a single run: a comparison {has}")
    if isinstance(seeds, int):
        seeds = list(range(seeds))
    if not isinstance(seeds, list) or not seeds:
        raise SettingError(f"seeds = {seeds!r}: it must be a list of seeds, or how many")
    cells = []
    for label, spec in _labelled(methods).items():
        own = spec.pop("run", {})
        if not isinstance(own, Mapping):
            raise SettingError(f"methods.{label}.run = {own!r}: it must hold settings of the run")
        for seed in seeds:
            settings = {**common, **own, "method": spec, "seed": seed, "label": label}
            cells.append(Cell(RunSettings.of(settings)))
    return Grid(tuple(cells), folder)


def _labelled(methods: Any) -> dict[str, dict[str, Any]]:
    """The specs of the methods by label; a list is labelled by name."""
    if isinstance(methods, Mapping):
        pairs = [(str(label), spec if spec is not None else label) for label, spec in methods.items()]
    elif isinstance(methods, list):
        pairs = [(spec if isinstance(spec, str) else str(dict(spec).get("name")), spec) for spec in methods]
    else:
        raise SettingError("a comparison needs 'methods': a list of specs, or a mapping from labels to specs")
    labelled: dict[str, dict[str, Any]] = {}
    for label, spec in pairs:
        if label in labelled:
            raise SettingError(
                f"methods: '{label}' stands twice; give labels, as in {{my label: {{name: {label}}}}}"
            )
        labelled[label] = {"name": spec} if isinstance(spec, str) else dict(spec)
    if not labelled:
        raise SettingError("methods: the list is empty")
    return labelled
