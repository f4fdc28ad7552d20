"""Models of a run as files that need no descant: weights, programs, ONNX, and an index that says which is which.

NAME.safetensors   the weights by name, for load_state_dict
NAME.pt2           the program with its weights (torch.export): model = torch.export.load("NAME.pt2").module()
NAME.onnx          the same for ONNX runtimes
index.json         clients, files, rounds, figures and checksums; a mere list of files until all are written

Nothing is pickled. A program is traced once, and saved with every client's weights.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from descant.errors import DamagedError, SettingError, unknown
from descant.experiment.folder import FOLDERS
from descant.experiment.journal import finished, unfinished
from descant.experiment.keeping import Round
from descant.experiment.models import KINDS
from descant.experiment.modules import fill
from descant.experiment.programs import Save, programs_of, require_onnx
from descant.files import claim_folder, plain, read_json
from descant.sealed import check_entry, ends_sealed, entry_of, write_tensors
from descant.sealed import read_json as read_sealed
from descant.sealed import write_json as write_sealed
from descant.version import __version__

if TYPE_CHECKING:
    from descant.experiment.run import Run

INDEX = "index.json"
_LONGEST = 60  # letters of a client's name in the name of its file
_LOAD = {
    "safetensors": "module.load_state_dict(safetensors.torch.load_file(FILE))",
    "pt2": "module = torch.export.load(FILE).module()",
    "onnx": "session = onnxruntime.InferenceSession(FILE)",
}


@dataclass(frozen=True)
class _Earlier:
    """What an earlier export left in a folder: files as it wrote them, and such as were changed since."""

    ours: set[str]
    changed: set[str]


@dataclass(frozen=True)
class _Model:
    """One model that is to be exported."""

    kind: str
    client: int | None  # its number; None for one that all have in common
    stem: str  # the name of its files, without what tells the format


def export(
    run: Run,
    folder: Path,
    *,
    round: Round,
    models: Sequence[str] | None,
    clients: Sequence[int | str] | None,
    onnx: bool,
    programs: bool,
    model: nn.Module | None,
    overwrite: bool,
) -> list[Path]:
    """Write some models of a run into a folder (`Run.export`)."""
    if onnx:
        require_onnx()
    wanted = _wanted(run, round, models, clients)
    formats = ["safetensors", *(["pt2"] if programs else []), *(["onnx"] if onnx else [])]
    names = {each: {format: f"{each.stem}.{format}" for format in formats} for each in wanted}
    to_write = [name for of in names.values() for name in of.values()]
    _refuse_run(folder)
    earlier = _earlier(folder)
    _refuse_taken(folder, to_write, earlier, overwrite)
    saves: dict[str, Save] = {"safetensors": lambda tensors, path: write_tensors(path, tensors, {})}
    module = run.models.template(model).eval() if programs or onnx else None
    if module is not None:
        saves |= programs_of(module, run.config, formats)
    claim_folder(folder)
    left = earlier.ours - {INDEX, *to_write}
    about = _about(run, round, formats)
    # without checksums at first: whenever the program is stopped, its files are known as ours
    begun = [{"files": {Path(name).suffix.removeprefix("."): name}} for name in (*to_write, *sorted(left))]
    write_sealed(folder / INDEX, plain(about | {"unfinished": True, "models": begun}))
    written, entries = [], []
    for each in wanted:
        tensors = run.models.trained(each.kind, each.client, round)
        whole = run.models.start() | tensors
        if module is not None:
            fill(module, tensors)
            whole = module.state_dict()
        for format, name in names[each].items():
            saves[format](whole, folder / name)
            written.append(folder / name)
        sums = {format: entry_of(folder / name) for format, name in names[each].items()}
        entries.append(_entry(run, each, round) | {"files": names[each], "checksums": sums})
    for name in left:
        (folder / name).unlink(missing_ok=True)  # before the new index, which no longer says that it is ours
    write_sealed(folder / INDEX, plain(about | {"models": entries}))
    return [*written, folder / INDEX]


def file_stem(number: int, name: str, clients: int) -> str:
    """A file name for a client, safe on every system: its number, and what its name has of plain letters.

    >>> file_stem(3, "St. Gallen/Süd", 20)
    '03-St._Gallen_Sud'
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", plain).strip("._-")[:_LONGEST].rstrip("._-")
    return "-".join(filter(None, [f"{number:0{len(str(clients - 1))}d}", plain]))


def _wanted(
    run: Run, round: Round, models: Sequence[str] | None, clients: Sequence[int | str] | None
) -> list[_Model]:
    names = run.history.federation.names
    if models is None:
        kept = {kind for kind in ("personal", "shared") for of in run.models.kept.values() if kind in of}
        models = [
            kind for kind in ("personal", "shared") if kind in kept and (kind == "personal" or clients is None)
        ]
        models = models or ["personal"]
    took_part = np.flatnonzero(run.history.federation.members("all")).tolist()  # of newcomers no models are kept
    numbers = took_part if clients is None else [run.models.number(client) for client in clients]
    found = []
    for kind in dict.fromkeys(models):
        if kind not in KINDS:
            raise unknown("kind of model", kind, KINDS)
        kept_models = run.models.find(kind, round)
        before = "" if kind == "personal" else f"{kind}-"
        if kind == "shared" and (kept_models is None or kept_models.rows.common):
            found.append(_Model(kind, None, kind))
        else:
            found += [_Model(kind, k, before + file_stem(k, names[k], len(names))) for k in dict.fromkeys(numbers)]
    return found


def _refuse_run(folder: Path) -> None:
    """Refuse the folder of a run, and those inside it that are the run's own, as `models/` is."""
    where = folder.resolve()
    for each in (where, *where.parents):
        own = each == where or where.relative_to(each).parts[0] in FOLDERS
        if own and (finished(each) or unfinished(each)):
            lies = "is" if each == where else "lies in"
            raise SettingError(f"'{folder}' {lies} the folder of a run, '{each}': choose another one")


def _refuse_taken(folder: Path, names: Sequence[str], earlier: _Earlier, overwrite: bool) -> None:
    """Refuse to write where something lies; with `overwrite`, where it is not as an earlier export left it."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise SettingError(f"'{folder}' is no folder: choose another one for the models")
    for path in [folder / name for name in (INDEX, *names)]:  # without the index nothing is known of the others
        if not os.path.lexists(path) or (overwrite and path.name in earlier.ours):
            continue
        remedy = "move it away, or choose another folder"
        if path.name in earlier.ours:
            why, remedy = "is there already", "choose another folder, or replace it with overwrite (--overwrite)"
        elif path.name in earlier.changed:
            why = "was changed since descant wrote it"
        else:
            why = "is there already, and descant did not write it"
        raise SettingError(f"'{path}' {why}: {remedy}")


def _earlier(folder: Path) -> _Earlier:
    """What an earlier export left, as its index says: of a name alone we would not know whose the file is."""
    path = folder / INDEX
    if not path.is_file() or path.is_symlink():
        return _Earlier(set(), set())
    try:
        index = read_sealed(path)[0] if ends_sealed(path) else read_json(path)
        _, models = index["descant"], [(entry["files"], entry.get("checksums", {})) for entry in index["models"]]
        listed = {str(name): sums.get(format) for files, sums in models for format, name in files.items()}
    except DamagedError:  # somebody has written in it
        return _Earlier(set(), {INDEX})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # that of another program
        return _Earlier(set(), set())
    here = {name for name in listed if Path(name).name == name and Path(name).suffix.removeprefix(".") in _LOAD}
    ours = {name for name in here if _is_unchanged(folder / name, listed[name])}
    return _Earlier(ours | {INDEX}, here - ours)


def _is_unchanged(path: Path, entry: Any) -> bool:
    """Whether a file is the one that was listed; without a checksum any plain file is taken for it."""
    try:
        check_entry(path, entry_of(path) if entry is None else entry)
    except DamagedError:  # another one, or none
        return False
    return True


def _entry(run: Run, each: _Model, round: Round) -> dict[str, Any]:
    """What the index says of a model: whose it is, of which round, and how good it was."""
    history, kept = run.history, run.models.find(each.kind, round)
    at = kept.round if kept is not None else max(history.spent, default=0)
    columns = history.evaluated.get(each.kind, {}).get(at, {})
    entry: dict[str, Any] = {"model": each.kind, "round": at}
    if each.client is None:
        return entry | {"figures": {column: history.figure(each.kind, at, column)["mean"] for column in columns}}
    entry |= {"client": history.federation.names[each.client], "number": each.client}
    return entry | {"figures": {column: float(values[each.client]) for column, values in columns.items()}}


def _about(run: Run, round: Round, formats: Sequence[str]) -> dict[str, Any]:
    return {
        "descant": __version__,
        "run": run.config["label"],
        "method": run.config["method"]["name"],
        "seed": run.config["seed"],
        "rounds": round,
        "metric": run.history.metric,
        "higher_is_better": run.history.higher_is_better,
        "input": run.config["data"]["example"]["inputs"],
        "load": {format: _LOAD[format] for format in formats},
    }
