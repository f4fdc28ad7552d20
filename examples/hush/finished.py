"""The finished runs of a folder, which the programs beside this one read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import descant as dc


def readable(folder: Path) -> Iterator[tuple[Path, dc.Run]]:
    """Each run of the folder that `descant compare` wrote to, with its own folder. What cannot be read is left out,
    and named."""
    for path in sorted(folder.glob("*/run.json")):
        try:
            yield path.parent, dc.load(path.parent)
        except (OSError, ValueError) as error:
            print(f"# left out: {error}", file=sys.stderr)


def finished(folder: Path) -> list[dc.Run]:
    """All of these runs, where there are any."""
    runs = [run for _, run in readable(folder)]
    if not runs:
        raise SystemExit(f"there are no runs in {folder}: give the folder that descant compare wrote to")
    return runs
