"""Data in memory-mapped files: examples are read when they are trained on, and need not fit memory.

FOLDER/data.json               what there is: names, shapes, types, fingerprint; with it the folder is whole
FOLDER/train.inputs.bin, ...   the packed tensors of each part, as raw numbers
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.data.arrays import PARTS
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.folder import check_folder
from descant.data.part import Part
from descant.files import claim_folder, dtype_of, map_tensor, name_of, read_json, sync, write_bytes, write_json

_FORMAT = 1
_FIELDS = ("inputs", "targets")
_ABOUT, _MARKER = "data.json", ".descant-data"
_SAYS = "descant is laying data into this folder: what lies here by the names of its files is not whole yet.\n"
_FILES = [f"{part}.{field}.bin" for part in PARTS for field in (*_FIELDS, "offsets")]
_BLOCK = 2**16  # examples written in one go


def save(folder: Path, blocks: Iterable[FederatedData], name: str, settings: Mapping[str, Any]) -> FederatedData:
    """Lay data into a folder, block after block of its clients (of examples alike), and map it."""
    claim_folder(folder)
    _begin(folder)
    clients: list[str] = []
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    classes: list[int | None] = []
    sizes: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    shapes: dict[str, dict[str, Any]] = {}
    with ExitStack() as files:
        names = [f"{part}.{field}" for part in PARTS for field in _FIELDS]
        opened = {tensor: files.enter_context(open(folder / f"{tensor}.bin", "wb")) for tensor in names}
        for block in blocks:
            clients += block.clients
            words, notes = block.class_names, block.notes
            classes.append(block.classes)
            for part in PARTS:
                sizes[part].append(block.part(part).sizes)
                for field in _FIELDS:
                    values: Tensor = getattr(block.part(part), field)
                    shapes[f"{part}.{field}"] = {"shape": list(values.shape[1:]), "dtype": name_of(values.dtype)}
                    for rows in torch.split(values, _BLOCK):
                        if rows.numel():
                            raw = rows.cpu().contiguous().view(-1).view(torch.uint8)
                            opened[f"{part}.{field}"].write(raw.numpy().data)
    for part in PARTS:
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(sizes[part]).cpu().cumsum(0)])
        (folder / f"{part}.offsets.bin").write_bytes(offsets.numpy().tobytes())
    for file in _FILES:
        sync(folder / file)
    about = {
        "format": _FORMAT,
        "name": name,
        "settings": dict(settings),
        "classes": None if None in classes else max(number or 0 for number in classes),
        "clients": None if clients == [str(k) for k in range(len(clients))] else clients,
        "class_names": list(words),
        "notes": list(notes),
        "tensors": shapes,
    }
    about["fingerprint"] = _map(folder, about).fingerprint
    write_json(folder / _ABOUT, about)
    (folder / _MARKER).unlink(missing_ok=True)
    return load(folder)


def _begin(folder: Path) -> None:
    """Refuse a folder with files by our names that somebody else may have written; mark it as being filled.

    The marker says that plain files by our names are not whole yet, and may be written again. It was left by a
    process that was killed, or is that of one at work: two that fill one folder at once are not told apart.
    """
    marked = _is_marked(folder)
    for name in (_ABOUT, *_FILES) if marked else (_MARKER, _ABOUT, *_FILES):
        path = folder / name
        if os.path.lexists(path) and not (marked and _is_plain(path)):  # what a link leads to is never written
            what = "it is there already, and data need its name: choose another folder, or move it away"
            raise DataError(what, file=path)
    if not marked:
        write_bytes(folder / _MARKER, [_SAYS.encode()])


def _is_marked(folder: Path) -> bool:
    marker = folder / _MARKER
    return _is_plain(marker) and marker.read_bytes() == _SAYS.encode()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def load(folder: Path) -> FederatedData:
    """Map the data that lies in a folder."""
    check_folder(folder, "a folder that FederatedData.mapped has filled")
    file = folder / _ABOUT
    try:
        about = read_json(file)
        if about["format"] != _FORMAT:
            raise DataError(f"it is in format {about['format']}, and this version reads {_FORMAT}", file=file)
        data = _map(folder, about)
    except FileNotFoundError as error:
        raise DataError(f"{error.filename} is missing: make the folder anew", file=file) from error
    except DataError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"it cannot be used ({error}): make the folder anew", file=file) from error
    vars(data)["fingerprint"] = about["fingerprint"]  # that of the files as they were written: not hashed again
    return data


def holds(folder: Path, *, fingerprint: str | None = None, settings: Mapping[str, Any] | None = None) -> bool:
    """Whether the folder holds the data wanted already; refuses one that holds others."""
    file = folder / _ABOUT
    if not file.is_file():
        return False
    try:
        about = read_json(file)
        kept, told = about["fingerprint"], about["settings"]
    except (ValueError, LookupError, TypeError) as error:  # no JSON, or that of another program
        what = (
            "it says nothing of data that descant laid down, or is damaged: choose another folder, or move it away"
        )
        raise DataError(what, file=file) from error
    same = fingerprint in (None, kept)
    if settings is not None:
        same &= json.loads(json.dumps(dict(settings))) == told
    if not same:
        raise DataError("the folder holds other data: choose another folder, or remove it", file=file)
    if _is_marked(folder):  # of a process that was killed at the very end: data.json says that the data are whole
        with suppress(OSError):  # a folder that can only be read is as good
            (folder / _MARKER).unlink(missing_ok=True)
    return True


def _map(folder: Path, about: Mapping[str, Any]) -> FederatedData:
    train, valid, test = (_part(folder, part, about["tensors"]) for part in PARTS)
    names = tuple(about["clients"] or ())
    words, notes = (tuple(about.get(name, ())) for name in ("class_names", "notes"))
    told = (about["classes"], about["name"], names, about["settings"])
    return FederatedData(train, valid, test, *told, class_names=words, notes=notes)


def _part(folder: Path, part: str, tensors: Mapping[str, Any]) -> Part:
    file = folder / f"{part}.offsets.bin"
    offsets = map_tensor(file, [file.stat().st_size // 8], torch.int64)
    inputs, targets = (
        map_tensor(
            folder / f"{part}.{field}.bin",
            [int(offsets[-1]), *tensors[f"{part}.{field}"]["shape"]],
            dtype_of(tensors[f"{part}.{field}"]["dtype"]),
        )
        for field in _FIELDS
    )
    return Part(inputs, targets, offsets)
