"""What becomes of clients with very few examples: refused, left out, or joined into one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from torch import Tensor

from descant.data.arrays import PARTS, Client, Pairs, as_array, in_parts, labels, pack
from descant.data.errors import DataError
from descant.errors import SettingError

Tiny = Literal["refuse", "drop", "pool"]
POOLED = "pooled"  # the name of the client that tiny ones are joined into
_NAMED, _NOTED = 10, 1000  # clients that an error names, and a note


def check_policy(least: Any, tiny: Any) -> None:
    """Refuse what is no policy."""
    if not isinstance(least, int | np.integer) or isinstance(least, bool) or least < 1:
        raise SettingError(f"least = {least!r}: it must be a whole number of examples, 1 or more")
    if tiny not in get_args(Tiny):
        raise SettingError(f"tiny = {tiny!r}: it must be 'refuse', 'drop' or 'pool'")


def tiny_clients(sizes: Mapping[str, int], least: int, tiny: Tiny) -> dict[str, int]:
    """The clients with fewer than `least` examples, with how many they have; an error where these are refused."""
    few = {name: size for name, size in sizes.items() if size < least}
    if few and tiny == "refuse":
        raise DataError(
            f"{_listed(few)} fewer than least={least} examples: give them more, lower least, leave them out "
            "(tiny='drop'), or join them into one client (tiny='pool')"
        )
    if few and tiny == "drop" and len(few) == len(sizes):
        raise DataError(f"no client has least={least} examples, and none would be left: lower least")
    if few and tiny == "pool" and sum(few.values()) < least:
        raise DataError(
            f"{_listed(few)} fewer than least={least} examples, and not as many together: lower least, or leave "
            "them out (tiny='drop')"
        )
    return few


class Done(NamedTuple):
    """What was done to tiny clients: for the settings of the data, and in words for its notes."""

    settings: dict[str, Any]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, few: Mapping[str, int], least: int, tiny: Tiny, pooled: str) -> Self:
        what = "left out" if tiny == "drop" else f"joined into one client, '{pooled}'"
        were = "was" if len(few) == 1 else "were"
        note = f"{_listed(few, _NOTED)} fewer than {least} examples, and {were} {what}"
        return cls({"least": int(least), "tiny": tiny}, (note[0].upper() + note[1:],) if few else ())


def without_tiny(clients: Mapping[str, Any], least: int, tiny: Tiny) -> tuple[dict[str, Any], Done]:
    """Clients in arrays, as the policy leaves them, and what was done.

    All examples of a client count. What has no size is left for others to refuse.
    """
    check_policy(least, tiny)
    if least == 1 and tiny == "refuse":  # nothing was asked for, and who has no example is refused elsewhere
        return dict(clients), Done({}, ())
    sizes = {name: size for name, client in clients.items() if (size := _size(client)) is not None}
    few = tiny_clients(sizes, least, tiny)
    kept = {name: client for name, client in clients.items() if name not in few}
    pooled = free_name(kept)
    if few and tiny == "pool":
        kept[pooled] = _pooled({name: clients[name] for name in few})
    return kept, Done.of(few, least, tiny, pooled)


def free_name(names: Container[str]) -> str:
    """The name of the joined client: one that nobody else has."""
    name, number = POOLED, 1
    while name in names:
        number += 1
        name = f"{POOLED} {number}"
    return name


def _size(client: Any) -> int | None:
    pairs = list(client.values()) if isinstance(client, Mapping) else [client]
    try:
        return sum(len(targets) for _, targets in pairs)
    except (TypeError, ValueError):
        return None


def _pooled(clients: Mapping[str, Any]) -> Client:
    """The examples of all these clients, one client after the other."""
    if not in_parts(clients):
        return _joined(clients)
    by_part = {part: {name: client[part] for name, client in clients.items() if part in client} for part in PARTS}
    return {part: _joined(pairs) for part, pairs in by_part.items() if pairs}


def _joined(pairs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    held = {name: pair for name, pair in pairs.items() if len(pair[1])} or pairs
    rows = [
        Pairs(as_array(x, "inputs", name), labels(as_array(y, "targets", name))) for name, (x, y) in held.items()
    ]
    part = pack(rows, list(held), rows[0])
    return part.inputs, part.targets


def _listed(few: Mapping[str, int], most: int = _NAMED) -> str:
    """Clients with their sizes, as the beginning of a sentence: 'client ... has'."""
    named = ", ".join(f"'{name}' ({size})" for name, size in list(few.items())[:most])
    more = f" and {len(few) - most} more" if len(few) > most else ""
    return f"client {named} has" if len(few) == 1 else f"{len(few)} clients, {named}{more}, have"
