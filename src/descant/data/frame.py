"""Clients from a data frame of pandas or polars, which is known by what it can do and not by its class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from descant.data.arrays import PARTS, Client
from descant.data.errors import DataError
from descant.data.folder import counting_order
from descant.data.words import class_names, places_of

Array = npt.NDArray[Any]


class Framed(NamedTuple):
    """The clients of a frame, and the names of the classes where targets are words."""

    clients: dict[str, Client]
    class_names: tuple[str, ...]
    features: list[str]


def clients_in(
    frame: Any, *, client: Hashable, target: Hashable, features: Iterable[Hashable] | None, split: Hashable | None
) -> Framed:
    """The rows of each client, in the frame's order; clients are sorted by name, numbers as they count."""
    columns = _columns(frame)
    features = _features(columns, client, target, features, split)
    whose = _owners(frame, client)
    x = np.stack([_numbers(frame, column, whose) for column in features], axis=1)
    y, class_names = _targets(frame, target, whose)
    parts = None if split is None else _parts(frame, split, whose)
    clients: dict[str, Client] = {}
    for name, rows in _rows_by_client(whose).items():
        if parts is None:
            clients[name] = (x[rows], y[rows])
        else:
            by_part = {part: rows[parts[rows] == part] for part in PARTS}
            clients[name] = {part: (x[own], y[own]) for part, own in by_part.items() if len(own)}
    return Framed(clients, class_names, [str(column) for column in features])


def _rows_by_client(whose: Array) -> dict[str, npt.NDArray[np.int64]]:
    names, codes = np.unique(whose, return_inverse=True)
    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes)
    rows = dict(zip(names.tolist(), np.split(order, np.cumsum(sizes)[:-1]), strict=True))
    return {name: rows[name] for name in sorted(rows, key=lambda name: (counting_order(name), name))}


def _columns(frame: Any) -> list[Hashable]:
    if callable(getattr(frame, "collect", None)):
        raise DataError("the frame is lazy: collect it first, as in frame.collect()")
    if isinstance(frame, str | PathLike):
        raise DataError(f"the frame is the path {str(frame)!r}: read it first, as with polars.read_csv")
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise DataError(f"the frame is a {type(frame).__name__}: give a data frame of pandas or polars")
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        twice = Counter(columns).most_common(1)[0][0]
        raise DataError(f"the frame has two columns called {twice!r}: rename one, or leave it out")
    if not len(frame):
        raise DataError("the frame has no rows")
    return columns


def _features(
    columns: list[Hashable],
    client: Hashable,
    target: Hashable,
    features: Iterable[Hashable] | None,
    split: Hashable | None,
) -> list[Hashable]:
    """The columns that a model sees: those asked for, or all that have no other part to play."""
    taken = {"client": client, "target": target} | ({} if split is None else {"split": split})
    for role, column in taken.items():
        _refuse_missing(columns, column, role)
    if len(set(taken.values())) < len(taken):
        raise DataError(
            f"{', '.join(f'{role}={column!r}' for role, column in taken.items())}: name different columns"
        )
    if features is None:
        found = [column for column in columns if column not in taken.values()]
        if not found:
            raise DataError(
                f"the frame has no columns besides {', '.join(map(repr, taken.values()))} to learn from"
            )
        return found
    features = [] if isinstance(features, str) else list(features)
    if not features:
        raise DataError("features: give a list of columns, as in features=['age', 'weight']")
    for column in features:
        _refuse_missing(columns, column, "features")
        for role, other in taken.items():
            if column == other:
                raise DataError(f"features name the column {column!r}, which is the {role}: leave it out of them")
    if len(set(features)) < len(features):
        twice = Counter(features).most_common(1)[0][0]
        raise DataError(f"features name the column {twice!r} twice: name it once")
    return features


def _refuse_missing(columns: list[Hashable], column: Hashable, role: str) -> None:
    if column not in columns:
        known = ", ".join(map(str, columns[:20])) + (", ..." if len(columns) > 20 else "")
        raise DataError(f"{role}: the frame has no column {column!r}; it has {known}")


def _values(frame: Any, column: Hashable) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The values of a column, and where they are missing: null, None or NaN."""
    series = frame[column]
    null = series.isna() if hasattr(series, "isna") else series.is_null()
    values, missing = np.asarray(series.to_numpy()), np.array(null.to_numpy(), dtype=bool)
    if values.ndim != 1:
        raise DataError(f"column {column!r} holds {values.shape[1:]} values a row: give each a column of its own")
    if values.dtype.kind == "f":
        missing |= np.isnan(values)
    if values.dtype.kind == "O" and all(isinstance(v, _NUMBERS) for v in values[~missing]):  # of a nullable column
        values = np.array([0 if gone else _plain(v) for v, gone in zip(values, missing, strict=True)])
    return values, missing


_NUMBERS = (Real, Decimal, np.bool_)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _owners(frame: Any, column: Hashable) -> Array:
    """The name of the client of every row."""
    values, missing = _values(frame, column)
    if values.dtype.kind == "f" and not missing.any() and (values == np.round(values)).all():
        values = values.astype(np.int64)  # numbers that a missing one once turned into floating ones
    names = np.array(["" if gone else str(value) for value, gone in zip(values, missing, strict=True)])
    unnamed = missing | (np.char.strip(names) == "")
    if unnamed.any():
        row = int(unnamed.argmax())
        raise DataError(
            f"column {column!r}: {int(unnamed.sum())} rows name no client (the first is row {row}): fill them in, "
            "or remove these rows"
        )
    return names


def _numbers(frame: Any, column: Hashable, whose: Array) -> Array:
    """A column of features as floating numbers."""
    values, missing = _values(frame, column)
    _refuse(missing, f"column {column!r}", "missing values", _FILL, whose)
    if values.dtype.kind not in "biuf":
        other = np.array([not isinstance(value, _NUMBERS) for value in values.tolist()])
        raise DataError(
            f"column {column!r} holds no numbers but values such as {str(values[other][0])!r}: encode it as "
            "numbers (pandas.get_dummies, polars to_dummies), or leave it out, as in features=[...]",
            client=str(whose[other][0]),
        )
    values = values.astype(np.result_type(values.dtype, np.float32))
    _refuse(~np.isfinite(values), f"column {column!r}", "infinite values", _FILL, whose)
    return values


_FILL = "fill them in, remove these rows, or leave the column out, as in features=[...]"


def _targets(frame: Any, column: Hashable, whose: Array) -> tuple[Array, tuple[str, ...]]:
    """Numbers as they are, true and false as 1 and 0, and words as classes."""
    values, missing = _values(frame, column)
    _refuse(missing, f"the target {column!r}", "missing values", "fill them in, or remove these rows", whose)
    if values.dtype.kind in "biuf":
        return values, ()
    wrong = np.array([not isinstance(value, str) for value in values.tolist()])
    if wrong.any():
        raise DataError(
            f"the target {column!r} holds {str(values[wrong][0])!r}: give numbers, or a word for each class",
            client=str(whose[wrong][0]),
        )
    words = values.astype(np.str_)
    classes = class_names([words])
    return places_of(words, classes), classes


def _parts(frame: Any, column: Hashable, whose: Array) -> Array:
    """The part that every row belongs to."""
    values, missing = _values(frame, column)
    parts = np.array(["" if gone else str(value) for value, gone in zip(values, missing, strict=True)])
    wrong = ~np.isin(parts, PARTS)
    if wrong.any():
        held = "nothing" if missing[wrong][0] else repr(str(values[wrong][0]))
        raise DataError(
            f"column {column!r} says {held} in row {int(wrong.argmax())}: it must be train, valid or test",
            client=str(whose[wrong][0]),
        )
    return parts


def _refuse(bad: npt.NDArray[np.bool_], where: str, what: str, remedy: str, whose: Array) -> None:
    """Refuse a column with bad values, and name the first client that has some."""
    if bad.any():
        client, others = str(whose[bad][0]), len(set(whose[bad].tolist())) - 1
        also = f" (and those of {others} other client{'s' if others > 1 else ''})" if others else ""
        rows = int(bad[whose == client].sum())
        raise DataError(f"{where} has {rows} {what} in its rows{also}: {remedy}", client=client)
