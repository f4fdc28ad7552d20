"""The table of docs/compared.md from the runs of a comparison, the best first:

descant compare examples/methods/digits.yaml --out runs/digits
python examples/methods/table.py runs/digits
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import descant as dc

HEADS = ("method", "test accuracy", "worst tenth", "worse than alone", "sent", "gradients")


def sent(count: float) -> str:
    """Bytes, in kB below a million."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB" if count else "0"


def cells(row: dict[str, Any]) -> list[str]:
    """A line of the table; `row` is one of `Comparison.table`."""
    figures = [f"{row[name]:.3f} ±{row[f'{name}_spread']:.3f}" for name in ("test_accuracy", "worst_10")]
    harmed = row["worse_than_alone"]
    spent = [sent(row["bytes_up"]), f"{row['gradients_per_client']:.0f}"]
    return [row["method"], *figures, "–" if harmed is None else f"{100 * harmed:.0f} %", *spent]


def main() -> None:
    runs = [dc.load(path.parent) for path in sorted(Path(sys.argv[1]).glob("*/run.json"))]
    if not runs:
        raise SystemExit(f"there are no runs in {sys.argv[1]}: give the folder that descant compare wrote to")
    table = dc.Comparison(runs).table()
    best_first = table.sort("test_accuracy", descending=True, nulls_last=True, maintain_order=True)
    for line in (HEADS, ["---"] * len(HEADS), *map(cells, best_first.iter_rows(named=True))):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
