"""Models of a run as files that need no descant: weights, programs, ONNX, and an index that says which is which.

NAME.safetensors   the weights by name, for load_state_dict
NAME.pt2           the program with its weights (torch.export): model = torch.export.load("NAME.pt2").module()
NAME.onnx          the same for ONNX runtimes
index.json         clients, files, rounds and figures; written last

Nothing is pickled. A program is traced once, and saved with every client's weights.
"""

from __future__ import annotations

import io
import logging
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from descant.errors import DamagedError, SettingError, TaskError, unknown
from descant.experiment.keeping import Round
from descant.experiment.models import KINDS
from descant.experiment.modules import fill, like_data
from descant.files import claim_folder, read_json, write_bytes, write_json
from descant.sealed import check_entry, entry_of, write_tensors
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
Save = Callable[[dict[str, Tensor], Path], object]  # write a model, given its tensors by name


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
        _require_onnx()
    wanted = _wanted(run, round, models, clients)
    formats = ["safetensors", *(["pt2"] if programs else []), *(["onnx"] if onnx else [])]
    names = {each: {format: f"{each.stem}.{format}" for format in formats} for each in wanted}
    _refuse_taken(folder, [name for of in names.values() for name in of.values()], overwrite)
    saves: dict[str, Save] = {"safetensors": lambda tensors, path: write_tensors(path, tensors, {})}
    module = run.models.template(model).eval() if programs or onnx else None
    if module is not None:
        saves |= _programs(module, run.config, formats)
    claim_folder(folder)
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
    for name in _left(folder) - {path.name for path in written}:
        (folder / name).unlink()  # before the new index, which no longer says that it is ours
    write_json(folder / INDEX, _about(run, round, formats) | {"models": entries})
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


def _refuse_taken(folder: Path, names: Sequence[str], overwrite: bool) -> None:
    """Refuse to write where something lies."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise SettingError(f"'{folder}' is no folder: choose another one for the models")
    for name in [*names, INDEX]:
        if os.path.lexists(folder / name) and not overwrite:
            raise SettingError(
                f"'{folder / name}' is there already: choose another folder, or replace it with overwrite "
                "(--overwrite)"
            )


def _left(folder: Path) -> set[str]:
    """The files that an earlier export left, as its index lists them; without those that were changed since."""
    try:
        index = read_json(folder / INDEX)
        _, models = index["descant"], [(entry["files"], entry["checksums"]) for entry in index["models"]]
        listed = {str(name): sums[format] for files, sums in models for format, name in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no index, or none of ours
        return set()
    here = [name for name in listed if Path(name).name == name and Path(name).suffix.removeprefix(".") in _LOAD]
    return {name for name in here if _is_unchanged(folder / name, listed[name])}


def _is_unchanged(path: Path, entry: Any) -> bool:
    try:
        check_entry(path, entry)
    except DamagedError:  # another one, or none
        return False
    return True


def _programs(module: nn.Module, config: dict[str, Any], formats: Sequence[str]) -> dict[str, Save]:
    """What writes a model as a program, in some formats. The module is traced once."""
    program = traced(module, like_data(config, 2).train.inputs)
    saves: dict[str, Save] = {}
    if "pt2" in formats:

        def save(tensors: dict[str, Tensor], path: Path) -> None:
            _put(program, tensors)
            raw = io.BytesIO()
            torch.export.save(program, raw)
            write_bytes(path, [raw.getbuffer()])

        saves["pt2"] = save
    if "onnx" in formats:
        names: dict[str, Any] = {"input_names": ["inputs"], "output_names": ["outputs"]}
        with _quiet():
            made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, **names)
        assert made is not None

        def save_onnx(tensors: dict[str, Tensor], path: Path) -> None:
            with _quiet():
                made.apply_weights(tensors)
            write_bytes(path, [made.model_proto.SerializeToString()])

        saves["onnx"] = save_onnx
    return saves


def traced(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The program of a module for any number of examples like this; without the examples, which are pickled."""
    try:
        with _quiet(), torch.no_grad():
            shapes = ({0: torch.export.Dim("batch", min=1)},)
            program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    except Exception as error:  # whatever torch.export cannot do
        first = str(error).strip().splitlines()[:1]
        raise TaskError(
            f"{type(module).__name__} cannot be made a program by torch.export ({' '.join(first)}): export weights "
            "alone (--weights-only, or programs=False)"
        ) from error
    program.example_inputs = None
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say of LSTM's own lists, of their own future, and of packages that are not needed."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _put(program: torch.export.ExportedProgram, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, held in program.state_dict.items():
            held.copy_(tensors[name])


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


def _require_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise SettingError(
            f"onnx: it needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'descant[onnx]'"
        )
