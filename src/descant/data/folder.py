"""Clients from a folder of .npz files.  Nothing is ever unpickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from descant.data.arrays import PARTS, Client, Pair
from descant.data.errors import DataError

_TABLES = (".csv", ".parquet", ".tsv")
_WHOLE = ("inputs", "targets")
_BY_PART = tuple(f"{part}_{field}" for part in PARTS for field in _WHOLE)


def client_files(folder: Path) -> dict[str, Path]:
    """The .npz files of a folder by client name (the file's stem), numbers in counting order: 2 before 10."""
    check_folder(folder, "a folder with one .npz file a client, or pictures")
    files = sorted(folder.glob("*.npz"), key=lambda file: (counting_order(file.stem), file.stem))
    if not files and (tables := sorted(file.name for file in folder.iterdir() if file.suffix.lower() in _TABLES)):
        raise DataError(
            f"folder {folder} has no .npz file, and tables such as {tables[0]} are not read from there: read them "
            "in Python, as with polars.read_csv, and give the frame to FederatedData.from_frame"
        )
    if not files:
        raise DataError(
            f"folder {folder} has no .npz file, and no pictures by client and class: write a file a client with "
            "numpy.savez, or lay out pictures as CLIENT/CLASS/1.png"
        )
    return {file.stem: file for file in files}


def check_folder(folder: Path, what: str) -> None:
    """Refuse a folder of data that is not there; `what` says which to give."""
    if not folder.is_dir():
        at = "" if folder.is_absolute() else f" in {Path.cwd()}"
        why = "it is a file" if folder.exists() else f"there is no such folder{at}"
        raise DataError(f"folder = '{folder}': {why}: give {what}")


def counting_order(stem: str) -> list[str | int]:
    """What to sort names by, so that 2 comes before 10."""
    pieces = re.split("([0-9]+)", stem)  # text, number, text, number, ...: always comparable
    return [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)]


def read_client(name: str, file: Path) -> Client:
    """The arrays of one client: `inputs` and `targets`, or `train_inputs`, `train_targets` and so on."""
    arrays = _read(name, file)
    try:
        return _client_of(arrays)
    except DataError as error:
        raise DataError(error.problem, client=name, file=file) from error


def first_not_finite(client: Client) -> str:
    """Where a client's file first holds NaN or infinity: the row, from 0 on, and the array."""
    pairs = client if isinstance(client, Mapping) else {"": client}
    for part, pair in pairs.items():
        for field, values in zip(_WHOLE, pair, strict=True):
            array = np.asarray(values)
            bad = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
            if bad.any():
                return f"{int(np.argwhere(bad)[0, 0])} of {f'{part}_{field}' if part else field}, counted from 0"
    raise AssertionError("a client all of whose numbers are finite is not refused")


def _client_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Client:
    for key in arrays:
        if key not in _WHOLE and key not in _BY_PART:
            raise DataError(f"unexpected key {key!r}: use {' and '.join(_WHOLE)}, or {', '.join(_BY_PART)}")
    if not any(key in arrays for key in _WHOLE):
        parts = [part for part in PARTS if part == "train" or any(key.startswith(part) for key in arrays)]
        return {part: _pair(arrays, f"{part}_") for part in parts}
    if len(arrays) > len(_WHOLE):
        raise DataError("holds both a whole client and parts of it: keep one form")
    return _pair(arrays, "")


def _pair(arrays: Mapping[str, npt.NDArray[Any]], of: str) -> Pair:
    inputs, targets = (f"{of}{field}" for field in _WHOLE)
    for key in (inputs, targets):
        if key not in arrays:
            raise DataError(f"missing key {key!r}: write {inputs} and {targets}")
    return arrays[inputs], arrays[targets]


def _read(name: str, file: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        # opened here, because numpy leaves its own handle open on a damaged file
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct or numpy, each with its own
        if "Object arrays" in str(error):
            problem = "holds pickled objects, which are never loaded: save plain numeric arrays"
        elif "pickle" in str(error):  # what numpy takes any other file for
            problem = "is no .npz file: write it with numpy.savez"
        else:
            problem = f"cannot be read as .npz ({type(error).__name__}: {error}): write it again"
        raise DataError(problem, client=name, file=file) from error
