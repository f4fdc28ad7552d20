"""The cells of a grid: runs that are known by what their result follows from."""

from __future__ import annotations

import gc
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from json import dumps, loads
from pathlib import Path
from platform import python_version
from typing import Any

from descant.catalog import describe
from descant.data.errors import DataError
from descant.engine import Record
from descant.errors import SettingError, TaskError
from descant.experiment.callback import Callback
from descant.experiment.datafiles import stamp
from descant.experiment.declaration import Settings
from descant.experiment.folder import RUN, START
from descant.experiment.identity import model_fingerprint, of_parts, of_users
from descant.experiment.journal import Journal, finished, unfinished
from descant.experiment.lock import at_work
from descant.experiment.ready import Ready, ready
from descant.experiment.resume import resume
from descant.experiment.run import Run
from descant.experiment.settings import RunSettings
from descant.methods import Method
from descant.sealed import read_json, write_json

_FILES = "files.json"  # in a cell's folder: the files of its data, as `stamp` saw them


@dataclass(frozen=True)
class Listening:
    """Who looks on at a cell while it is run."""

    progress: Callable[[Record], None] | None = None
    callbacks: tuple[Callback, ...] = ()

    def identity(self) -> list[Any]:
        """What a result follows from: the callbacks that may stop a run."""
        return [found for callback in self.callbacks if (found := callback.identity()) is not None]


class Cell(ABC):
    """One run of a grid."""

    settings: Settings
    at: Mapping[str, str]  # where the user wrote settings, by name; one that is not there stands under its own

    @property
    @abstractmethod
    def label(self) -> str:
        """The row of a table that the run belongs to."""

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def rounds(self) -> int:
        return self.settings.rounds

    @abstractmethod
    def identity(self) -> Any:
        """What the result follows from, as plain data."""

    @abstractmethod
    def apart_from_seed(self) -> Any:
        """What cells that differ in their seed alone have in common, as plain data."""

    @abstractmethod
    def check(self) -> Ready:
        """Refuse what the run would refuse before it trains; what could begin is returned."""

    @abstractmethod
    def place(self, folder: Path) -> Path:
        """The folder of the cell: `folder`, or beside it where that holds a run on other data."""

    def begun(self, folder: Path) -> bool:
        """Whether the run in a folder of this cell's name is this cell, and so was checked when it began."""
        return finished(folder) or unfinished(folder) or at_work(folder)

    @abstractmethod
    def begin(self, out: Path | None, listening: Listening) -> Run:
        """Run it from the beginning."""

    @abstractmethod
    def go_on(self, out: Path, listening: Listening) -> Run:
        """Run it from its last commit on."""

    @property
    def key(self) -> str:
        """The name of the cell's folder: its label and seed to read, and a hash of what its result follows from.

        How the run is carried out (mode, device, chunk, threads, store, commit) does not belong to it, and neither
        does a setting that has its default, here or inside a method: a setting that is added renames no cell.
        """
        slug = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")
        return f"{slug}-seed{self.seed}-{_digest(self.identity(), 8)}"

    def __str__(self) -> str:
        return f"'{self.label}' (seed {self.seed})"


@dataclass(frozen=True)
class FromFile(Cell):
    """A run as a settings file says it; `stops` is what callbacks that may stop it say of themselves."""

    settings: RunSettings
    stops: list[Any] = field(default_factory=list)
    at: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.settings.title

    def identity(self) -> dict[str, Any]:
        return self.settings.identity() | ({"stops": self.stops} if self.stops else {})

    def apart_from_seed(self) -> dict[str, Any]:
        return self.settings.plain() | {"seed": None}

    def check(self) -> Ready:
        data = self.settings.federated_data()
        return ready(self.settings.task(data), data, self.settings.method, self.settings)

    def place(self, folder: Path) -> Path:
        """The folder of a cell: `folder`, or beside it where that holds a run on data that are others by now, of
        code that is, or of a method whose defaults are.

        As long as no file of the data has another size or time, they are the same; if not, they are read and
        compared.
        """
        folder = self._beside(folder)
        if not finished(folder) and not unfinished(folder):
            return folder
        files = stamp(self.settings.data_spec)
        if files is not None and _stamped(folder) == files:
            return folder
        try:
            now = self.settings.federated_data().fingerprint
        except (DataError, OSError):
            return folder  # the files are gone, and the run is what is left
        then = _about(folder).get("config", {}).get("data", {}).get("fingerprint")
        if then in (now, None):  # the first format did not say
            with suppress(OSError):  # a folder that can only be read is compared the next time, too
                write_json(folder / _FILES, {"files": files})
            return folder
        return folder.with_name(f"{folder.name}-{now[:8]}")

    def begun(self, folder: Path) -> bool:
        return super().begun(self._beside(folder))

    def _beside(self, folder: Path) -> Path:
        """The folder of a cell, whatever its data: another where `folder` holds a run of other code or defaults."""
        changed = self._changed(folder)
        return folder.with_name(f"{folder.name}-{_digest(changed, 4)}") if changed else folder

    def _changed(self, folder: Path) -> dict[str, Any]:
        """What the result follows from and the cell's name does not tell, where the run in a folder had it
        otherwise, as it is now: defaults of the method, and code of the user's.

        Code of another version of Python cannot be compared.
        """
        about = _about(folder)
        then, versions = about.get("fingerprints", {}), about.get("config", {}).get("versions", {})
        same_python = str(versions.get("python")).split(".")[:2] == python_version().split(".")[:2]
        now = self._users_code() if same_python else {}
        code = {f"code of {name}": told for name, told in now.items() if then.get(name, told) != told}
        return otherwise(folder, self.settings.method) | code

    def _users_code(self) -> dict[str, str]:
        """The fingerprints of parts of the user's own: of descant's, versions tell the code."""
        method: Any = self.settings.method
        acting = {name: getattr(self.settings, name) for name in ("aggregator", "codec", "downlink", "attacks")}
        prints = of_parts(method, **acting)
        found = {name: prints[name] for name, part in {"method": method, **acting}.items() if of_users(part)}
        if ":" in str(self.settings.model.get("name")):
            # If the files are gone, or the model cannot be made any more, the run is what is left.
            with suppress(DataError, OSError, SettingError, TaskError):
                found["model"] = model_fingerprint(self.settings.task(self.settings.federated_data()).model)
        return found

    def begin(self, out: Path | None, listening: Listening) -> Run:
        files = stamp(self.settings.data_spec)
        execute = partial(self.settings.execute, progress=listening.progress, callbacks=listening.callbacks)
        if out is None:
            return execute()
        execute(out)
        return _left(out, files, allow_imports=True)  # which have just been followed

    def go_on(self, out: Path, listening: Listening) -> Run:
        files = stamp(self.settings.data_spec)
        own = Journal.reopen(out).settings == loads(dumps(self.settings.plain()))  # and not a stranger's
        resume(out, allow_imports=own, progress=listening.progress, callbacks=listening.callbacks)
        return _left(out, files, allow_imports=own)


def _left(out: Path, files: str | None, allow_imports: bool) -> Run:
    """The run in a folder, which was made from `files`.

    It is read, since a grid keeps all of its runs: one that has just ended still holds every client's state. Its
    parts hold each other, so that nothing of it is free until Python looks for such parts.
    """
    gc.collect()
    write_json(out / _FILES, {"files": files})
    return Run.load(out, allow_imports=allow_imports)


def otherwise(folder: Path, method: Method) -> dict[str, Any]:
    """The fields that a method has otherwise in the run that a folder holds, if it holds one, as they are now; and
    its `revision`.

    What has its default does not tell cells apart. So a default that is another one since then does not, either.
    """
    config = _about(folder).get("config", {})
    fields = _apart(config.get("method"), loads(dumps(describe(method))))
    same = not config or config.get("revision", 1) == method.revision
    return fields if same else fields | {"revision": method.revision}


def _about(folder: Path) -> dict[str, Any]:
    """What the run in a folder says of itself, if there is one."""
    if not finished(folder) and not unfinished(folder):
        return {}
    return read_json(folder / (RUN if finished(folder) else START))[0]


def _apart(then: Any, now: Any) -> dict[str, Any]:
    """What differs between two descriptions, of what both have: the rest came later, or is gone."""
    if not isinstance(then, Mapping) or not isinstance(now, Mapping):
        return {}
    found = dict[str, Any]()
    for name in sorted(then.keys() & now.keys()):
        if isinstance(then[name], Mapping) and isinstance(now[name], Mapping):
            found |= {f"{name}.{inner}": value for inner, value in _apart(then[name], now[name]).items()}
        elif then[name] != now[name]:
            found[name] = now[name]
    return found


def _digest(told: Any, size: int) -> str:
    return blake2b(dumps(told, sort_keys=True).encode(), digest_size=size).hexdigest()


def _stamped(folder: Path) -> Any:
    """The files of the data that the run in a folder was made from, as far as it is known."""
    return read_json(folder / _FILES)[0].get("files") if (folder / _FILES).is_file() else None
