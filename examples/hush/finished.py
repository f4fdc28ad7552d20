"""The finished runs of a folder, which the programs beside this one read."""

from __future__ import annotations

import sys
from pathlib import Path

import descant as dc


def finished(folder: Path) -> list[dc.Run]:
    """All runs of the folder that `descant compare` wrote to. What cannot be read is left out, and named."""
    runs = []
    for path in sorted(folder.glob("*/run.json")):
        try:
            runs.append(dc.load(path.parent))
        except (OSError, ValueError) as error:
            print(f"# left out: {error}", file=sys.stderr)
    if not runs:
        raise SystemExit(f"there are no runs in {folder}: give the folder that descant compare wrote to")
    return runs
