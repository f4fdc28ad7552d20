"""From one data set and, by the name of every client, the indices of its examples to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset

from descant.data.arrays import PARTS, Client
from descant.data.assignment import assigned, integers
from descant.data.errors import DataError
from descant.data.part import Part
from descant.data.splits import IntArray

# For every client the indices of its examples, or those of its train, valid and test parts.
Named = Mapping[Any, Any]


def clients_by_name(dataset: Dataset[Any], assignment: Named) -> tuple[dict[str, Client], Part, tuple[str, ...]]:
    """The examples of every client, whole or in the parts that are named; all of them; and the words for labels."""
    named = {str(name): own for name, own in assignment.items()}
    if len(named) < len(assignment):
        raise DataError("two clients have one name, as text and as a number: name each client once")
    lists = [(name, part, indices) for name, own in named.items() for part, indices in _parts(own, name)]
    held = [(name, part, indices) for name, part, indices in lists if len(indices)]
    if not held:
        raise DataError("the assignment gives nobody an example: give every client the indices of its examples")
    whole, words = assigned(dataset, [indices for _, _, indices in held], [name for name, _, _ in held])
    read = {(name, part): whole.client(k) for k, (name, part, _) in enumerate(held)}
    none = (whole.inputs[:0], whole.targets[:0])
    clients: dict[str, Client] = {}
    for name, own in named.items():
        by_part = {part: read.get((name, part), none) for part, _ in _parts(own, name)}
        clients[name] = by_part if isinstance(own, Mapping) else by_part[""]
    return clients, whole, words


def _parts(own: Any, name: str) -> list[tuple[str, IntArray]]:
    """The indices of a client by part; "" where it is whole."""
    if not isinstance(own, Mapping):
        return [("", integers(own, "the indices", name))]
    for part in own:
        if part not in PARTS:
            raise DataError(f"no part is called {part!r}: use train, valid, test", client=name)
    return [(part, integers(indices, f"the {part} indices", name)) for part, indices in own.items()]
