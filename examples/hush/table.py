"""Tables of a comparison beside Ditto, beside its first method, or beside the one that is named:

descant compare best.yaml --out runs/mnist-20
python examples/hush/table.py runs/mnist-20
python examples/hush/table.py runs/mnist-20 "Ditto, two rates"

Accuracies are those of the clients' own models, in the round chosen on validation data: the mean over clients and
seeds, and the difference from Ditto seed by seed, with its 95 % interval. **fewer bytes** are Ditto's bytes over
the method's, up and in all. **of the gain** is what it gains over training alone, as a share of what Ditto gains,
if that is a point or more. How many seeds of a method collapsed stands behind its name: their figures are those of
the round chosen before that, and of their bytes and gains nothing is said. Runs that differ in their data, model,
rounds, cohort or attacks are refused.
"""

from __future__ import annotations

import sys
from math import inf, isnan
from pathlib import Path
from typing import Any

from finished import check_alike, finished

import descant as dc

HEADS = (
    *("method", "test accuracy", "less Ditto", "worst tenth", "of the gain"),
    *("sent up", "in all", "fewer bytes up", "in all"),
)


def size(count: float) -> str:
    """Bytes, in kB below a million."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB" if count else "0"


def times(ours: float, theirs: float) -> str:
    """How many times fewer bytes are ours."""
    if not ours or not theirs:
        return "–"
    return f"{theirs / ours:,.0f}x" if theirs >= ours else f"{theirs / ours:.2g}x"


def place(figure: float | None, higher_is_better: bool) -> float:
    """What methods are sorted by: the best comes first, and last who has no figure."""
    if figure is None or isnan(figure):
        return inf
    return -figure if higher_is_better else figure


def cells(
    row: dict[str, Any], base: dict[str, Any], alone: dict[str, Any] | None, gap: str, metric: str
) -> list[str]:
    """What stands in the table of one method, beside `base`."""
    figure = f"test_{metric}"
    gain, fewer = "–", ["–", "–"]
    up, both = row["bytes_up"], row["bytes_up"] + row["bytes_down"]
    if not row["collapsed"] and not base["collapsed"]:
        fewer = [times(up, base["bytes_up"]), times(both, base["bytes_up"] + base["bytes_down"])]
        best = 0.0 if alone is None or alone["collapsed"] else base[figure] - alone[figure]
        if alone is not None and best >= 0.01 and metric == "accuracy":
            gain = f"{100 * (row[figure] - alone[figure]) / best:.0f} %"
    told = (
        f"{row['method']} ({row['collapsed']} of {row['seeds']} collapsed)" if row["collapsed"] else row["method"]
    )
    figures = ["–" if row[name] is None else f"{row[name]:.4f}" for name in (figure, "worst_10")]
    return [told, figures[0], gap, figures[1], gain, size(up), size(both), *fewer]


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    runs = finished(Path(sys.argv[1]))
    check_alike(runs, Path(sys.argv[1]))
    metric = runs[0].history.metric
    compared = dc.Comparison(runs)
    rows: dict[str, dict[str, Any]] = {row["method"]: row for row in compared.table().iter_rows(named=True)}
    against = sys.argv[2] if len(sys.argv) == 3 else "Ditto" if "Ditto" in rows else next(iter(rows))
    if against not in rows:
        raise SystemExit(f"there is no method {against!r} in {sys.argv[1]}, only {', '.join(rows)}")
    apart = {row["method"]: row for row in compared.differences(against).iter_rows(named=True)}
    base, alone = rows[against], rows.get("Local")
    heads = [head.replace("less Ditto", f"less {against}").replace("accuracy", metric) for head in HEADS]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    higher = runs[0].history.higher_is_better
    for label, row in sorted(rows.items(), key=lambda item: place(item[1][f"test_{metric}"], higher)):
        found = apart.get(label)
        gap = "" if found is None else f"{found['difference']:+.4f}"
        if found is not None and found["low"] is not None:
            gap += f" ({found['low']:+.4f} to {found['high']:+.4f})"
        print(f"| {' | '.join(cells(row, base, alone, gap, metric))} |")


if __name__ == "__main__":
    main()
