"""Labels that come as words: class names, and the numbers that stand for them, for all clients and parts alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from descant.data.errors import DataError

_Place = tuple[str, str]  # a client, and one of its parts


def numbered(clients: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Clients whose labels are words with numbers in their place, and the words, sorted; others as they are."""
    found = [(name, part, pair) for name, client in clients.items() for part, pair in _pairs(client)]
    targets = {(name, part): pair[1] for name, part, pair in found}
    wordy = [at for at, own in targets.items() if are_words(own)]
    if not wordy:
        return clients, ()
    known = set(wordy)
    silent = [at for at in targets if at not in known]
    _refuse_mixed(wordy, [at for at in silent if np.size(targets[at])])  # no examples, as in ([], []), have no form
    words = {(name, part): as_words(targets[name, part], client=name) for name, part in wordy}
    words |= {at: np.empty(0, dtype=np.str_) for at in silent}
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


def _refuse_mixed(wordy: Sequence[_Place], numeric: Sequence[_Place]) -> None:
    """Refuse words here and numbers there; the form that is rarer is more likely the wrong one."""
    if not numeric:
        return
    sides = [("numbers", numeric), ("words", wordy)]
    (form, those), (other_form, others) = sorted(sides, key=lambda side: len(side[1]))
    (client, part), (other, other_part) = those[0], others[0]
    whose = f"its {other_part} targets" if other == client else f"those of client {other!r}"
    targets = f"{part} targets" if part else "targets"
    raise DataError(f"{targets} are {form}, and {whose} are {other_form}: give all one form", client=client)


def _pairs(client: Any) -> list[tuple[str, Any]]:
    """The pairs (inputs, targets) of a client, by part; what is none is left for others to refuse."""
    parts = list(client.items()) if isinstance(client, Mapping) else [("", client)]
    return [(part, pair) for part, pair in parts if isinstance(pair, tuple | list) and len(pair) == 2]
