"""From one pair of arrays a client, or one pair a part of a client, to packed parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.checks import check_names
from descant.data.errors import DataError
from descant.data.part import Part
from descant.data.splits import offsets_of, split

PARTS = ("train", "valid", "test")

Array = npt.ArrayLike | Tensor
Pair = tuple[Array, Array]  # inputs, targets
Client = Pair | Mapping[str, Pair]  # all examples of a client, or those of its parts by name

# What torch computes with; other kinds (text, objects, complex) are refused by name.
_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


class Pairs(NamedTuple):
    """Examples of one client."""

    inputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]


def parts_of(clients: Mapping[str, Client], *, test: float, valid: float, seed: int) -> tuple[Part, Part, Part]:
    """The train, valid and test parts of clients that come whole (and are split) or already in parts."""
    names = list(clients)
    check_names(names)
    if not in_parts(clients):
        whole = [_rows_of(client, name) for name, client in clients.items()]
        return split(pack(whole, names, whole[0]), names, test=test, valid=valid, seed=seed)
    rows = [_rows_by_part(client, name) for name, client in clients.items()]
    like = rows[0]["train"]
    train, valid_part, test_part = (
        pack([client.get(part, _none_like(like)) for client in rows], names, like, f"{part} ") for part in PARTS
    )
    return train, valid_part, test_part


def in_parts(clients: Mapping[str, Any]) -> bool:
    """Whether clients come in parts; where some do and others come whole, the first of the fewer is refused."""
    parted = [name for name, client in clients.items() if isinstance(client, Mapping)]
    whole = [name for name, client in clients.items() if not isinstance(client, Mapping)]
    if not parted or not whole:
        return bool(parted)
    forms = {"in parts": parted, "as (inputs, targets)": whole}
    odd, other = sorted(forms, key=lambda form: (len(forms[form]), next(iter(clients)) in forms[form]))
    raise DataError(
        f"comes {odd}, where client {forms[other][0]!r} comes {other}: give all clients one form",
        client=forms[odd][0],
    )


def _remedy(field: str, rows: Sequence[Pairs]) -> str:
    """How all clients come by one type, which is that of most of them."""
    kinds = Counter(getattr(client, field).dtype.name for client in rows if len(client.targets))
    return f", as with {field}.astype('{kinds.most_common(1)[0][0]}')" if len(kinds) > 1 else ""


def pack(rows: Sequence[Pairs], names: Sequence[str], like: Pairs, of: str = "") -> Part:
    """Concatenate the rows of all clients, each of which must hold examples like those of `like`."""
    for name, client in zip(names, rows, strict=True):
        if not len(client.targets):
            continue  # no examples have no shape to disagree with, as in ([], [])
        for field, values, expected in zip(Pairs._fields, client, like, strict=True):
            if values.shape[1:] != expected.shape[1:] or values.dtype != expected.dtype:
                raise DataError(
                    f"{of}{field} are {values.dtype} of shape {values.shape[1:]} an example, and those of "
                    f"client {names[0]!r} are {expected.dtype} of shape {expected.shape[1:]}: "
                    f"give all clients the same{_remedy(field, rows)}",
                    client=name,
                )
    held = [client for client in rows if len(client.targets)] or [_none_like(like)]
    sizes = np.array([len(client.targets) for client in rows], dtype=np.int64)
    inputs = torch.from_numpy(np.concatenate([client.inputs for client in held]))
    targets = torch.from_numpy(np.concatenate([client.targets for client in held]))
    return Part(inputs, targets, offsets_of(sizes))


def _rows_by_part(client: Any, name: str) -> dict[str, Pairs]:
    if unknown := set(client) - set(PARTS):
        raise DataError(f"no part is called {min(map(str, unknown))!r}: use train, valid, test", client=name)
    if "train" not in client:
        raise DataError("no train part: give it one, or leave the client out", client=name)
    return {
        part: _rows_of(client[part], name, f"{part} ", may_be_empty=part != "train")
        for part in PARTS
        if part in client
    }


def _rows_of(pair: Any, name: str, of: str = "", *, may_be_empty: bool = False) -> Pairs:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{of}examples must be a pair (inputs, targets)", client=name)
    inputs = as_array(pair[0], f"{of}inputs", name)
    targets = as_array(pair[1], f"{of}targets", name)
    if inputs.ndim == 0 or targets.ndim == 0:
        raise DataError(f"{of}examples are a single number: give arrays, one row an example", client=name)
    if len(inputs) != len(targets):
        raise DataError(
            f"{len(inputs)} {of}inputs but {len(targets)} {of}targets: give one target an input", client=name
        )
    if not len(inputs) and not may_be_empty:
        how = "" if of else " (tiny='drop', least=1)"  # which counts the examples of all parts
        raise DataError(f"no {of}examples: give it at least one, or leave it out{how}", client=name)
    targets = labels(targets)
    column = targets.ndim == 2 and targets.shape[1] == 1 and targets.dtype.kind == "i"
    return Pairs(inputs, targets[:, 0] if column else targets)


def as_array(values: Any, field: str, name: str | None = None) -> npt.NDArray[Any]:
    """The values as a numpy array of a type that torch computes with."""
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        remedy = "give every example the same shape, and a type that numpy has"
        problem = f"{field} are not a rectangular array of numbers ({error}): {remedy}"
        raise DataError(problem, client=name) from error
    if array.dtype.name not in _DTYPES:
        raise DataError(f"{field} are {array.dtype}: convert them to one of {', '.join(_DTYPES)}", client=name)
    return array.astype(array.dtype.newbyteorder("="), copy=False)  # torch reads native byte order only


def labels(targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integer targets as int64, which torch's losses ask for; floating targets as they are."""
    return targets if targets.dtype.kind == "f" else targets.astype(np.int64, copy=False)


def _none_like(rows: Pairs) -> Pairs:
    return Pairs(rows.inputs[:0], rows.targets[:0])
