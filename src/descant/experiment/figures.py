"""The figures of a run by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


class Figures(dict[str, Any]):
    """Figures by name. Asked for one that is not there, it says why, or which one is nearest.

    `without` says, by the name of a round ("chosen_on_valid"), why no figure is of it.
    """

    without: Mapping[str, str] = {}

    def __missing__(self, name: str) -> Any:
        why = self.without.get(str(name).rpartition("@")[2])
        near = get_close_matches(str(name), self, n=1, cutoff=0.5)
        hint = why or (f"did you mean {near[0]!r}?" if near else "`list(run.summary())` has all of them")
        raise KeyError(f"there is no figure {name!r}: {hint}")
