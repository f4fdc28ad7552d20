"""Labels that come as words: class names, and the numbers that stand for them, for all clients and parts alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from descant.data.errors import DataError


def numbered(clients: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Clients whose labels are words with numbers in their place, and the words, sorted; others as they are."""
    found = [(name, part, pair) for name, client in clients.items() for part, pair in _pairs(client)]
    if not any(are_words(pair[1]) for _, _, pair in found):
        return clients, ()
    words = {(name, part): _words(pair[1], name) for name, part, pair in found}
    classes = class_names(words.values())
    places = {key: places_of(own, classes) for key, own in words.items()}
    numbers: dict[str, Any] = {}
    for name, client in clients.items():
        by_part = {part: (pair[0], places[name, part]) for part, pair in _pairs(client)}
        numbers[name] = {**client, **by_part} if isinstance(client, Mapping) else by_part.get("", client)
    return numbers, classes


def are_words(targets: Any) -> bool:
    """Whether targets are text, judged by their type, or by the first where they have none."""
    if isinstance(targets, np.ndarray) and targets.dtype.kind != "O":
        return targets.dtype.kind in "UST"
    while isinstance(targets, Sequence | np.ndarray) and not isinstance(targets, str | bytes) and len(targets):
        targets = targets[0]
    return isinstance(targets, str | bytes)


def class_names(words: Iterable[npt.NDArray[np.str_]]) -> tuple[str, ...]:
    """All words that occur, sorted."""
    return tuple(sorted({str(word) for own in words for word in np.unique(own)}))


def places_of(words: npt.NDArray[np.str_], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """The place of every word among the classes."""
    unique, back = np.unique(words, return_inverse=True)
    place = {name: k for k, name in enumerate(classes)}
    return np.array([place[str(word)] for word in unique], dtype=np.int64)[back].reshape(words.shape)


def as_words(values: Any, of: str = "", client: str | None = None) -> npt.NDArray[np.str_]:
    """Targets as text; what is no text, or none at all, is refused."""
    array = np.asarray(values, dtype=object)
    words = np.array([_word(value, of, client) for value in array.reshape(-1)], dtype=np.str_)
    return words.reshape(array.shape)


def _word(value: Any, of: str, client: str | None) -> str:
    try:
        word = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise DataError(f"{of}the label {value!r} is not UTF-8 text: write it as text", client=client) from error
    if not isinstance(word, str):
        raise DataError(
            f"{of}a label is {value!r} where others are words: give all of them as words", client=client
        )
    if not word.strip():
        raise DataError(f"{of}a label is empty: name the class, or leave the example out", client=client)
    return str(word)


def _words(targets: Any, client: str) -> npt.NDArray[np.str_]:
    if not isinstance(targets, Tensor) and are_words(targets):
        return as_words(targets, client=client)
    if not len(np.atleast_1d(np.asarray(targets))):  # no examples, as in ([], [])
        return np.empty(0, dtype=np.str_)
    raise DataError(
        "targets are numbers, and those of other clients or parts are words: give all one form", client=client
    )


def _pairs(client: Any) -> list[tuple[str, Any]]:
    """The pairs (inputs, targets) of a client, by part; what is none is left for others to refuse."""
    parts = list(client.items()) if isinstance(client, Mapping) else [("", client)]
    return [(part, pair) for part, pair in parts if isinstance(pair, tuple | list) and len(pair) == 2]
