"""Tables of a comparison beside Ditto, beside its first method, or beside the one that is named:

descant compare best.yaml --out runs/mnist-20
python examples/hush/table.py runs/mnist-20
python examples/hush/table.py runs/mnist-20 "Ditto, two rates"

Accuracies are those of the clients' own models, in the round chosen on validation data: the mean over clients and
seeds, and the difference from Ditto seed by seed, with its 95 % interval. **fewer bytes** are Ditto's bytes over
the method's, up and in all. **of the gain** is what it gains over training alone, as a share of what Ditto gains,
if that is a point or more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import descant as dc

HEADS = (
    *("method", "test accuracy", "less Ditto", "worst tenth", "of the gain"),
    *("sent up", "in all", "fewer bytes up", "in all"),
)


def size(count: float) -> str:
    """Bytes, in kB below a million."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB" if count else "0"


def times(ours: float, theirs: float) -> str:
    return f"{theirs / ours:,.0f}x" if ours else "–"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    runs = [dc.load(path.parent) for path in sorted(Path(sys.argv[1]).glob("*/run.json"))]
    if not runs:
        raise SystemExit(f"there are no runs in {sys.argv[1]}: give the folder that descant compare wrote to")
    compared = dc.Comparison(runs)
    rows: dict[str, dict[str, Any]] = {row["method"]: row for row in compared.table().iter_rows(named=True)}
    against = sys.argv[2] if len(sys.argv) == 3 else "Ditto" if "Ditto" in rows else next(iter(rows))
    if against not in rows:
        raise SystemExit(f"there is no method {against!r} in {sys.argv[1]}, only {', '.join(rows)}")
    apart = {row["method"]: row for row in compared.differences(against).iter_rows(named=True)}
    base, alone = rows[against], rows.get("Local")
    print(f"| {' | '.join(HEADS).replace('less Ditto', f'less {against}')} |\n|{'---|' * len(HEADS)}")
    for label, row in sorted(rows.items(), key=lambda item: -(item[1]["test_accuracy"] or 0)):
        found = apart.get(label)
        gap = "" if found is None else f"{found['difference']:+.4f}"
        if found is not None and found["low"] is not None:
            gap += f" ({found['low']:+.4f} to {found['high']:+.4f})"
        gain = "–"
        if alone is not None and base["test_accuracy"] - alone["test_accuracy"] >= 0.01:
            won = row["test_accuracy"] - alone["test_accuracy"]
            gain = f"{100 * won / (base['test_accuracy'] - alone['test_accuracy']):.0f} %"
        up, both = row["bytes_up"], row["bytes_up"] + row["bytes_down"]
        fewer = [times(up, base["bytes_up"]), times(both, base["bytes_up"] + base["bytes_down"])]
        figures = [f"{row['test_accuracy']:.4f}", gap, f"{row['worst_10']:.4f}", gain, size(up), size(both), *fewer]
        print(f"| {' | '.join([label, *figures])} |")


if __name__ == "__main__":
    main()
