"""Hush beside Ditto under every attack, each with the aggregator that serves it best there:

    descant robustness examples/hush/attacks.yaml --set device=cuda
    python examples/hush/robust.py runs/attacks

For each attack the aggregator of a method is the one with the best mean accuracy on validation data, over seeds.
One with which any seed collapsed comes last. Figures are the mean test accuracy of the clients' own models over
seeds, in the round chosen on validation data. The difference is taken seed by seed, with its 95 % interval. All of
it is of the benign clients. **alone** is training alone, which no attack reaches.

Labels say what a method is: those that begin with `Ditto, ` are Ditto, those with `Hush, ` are Hush, and the rest
of a label is its aggregator. Local is training alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import polars as pl
from finished import finished

import descant as dc
from descant.experiment.attackgrid import CLEAN, percent
from descant.experiment.namesakes import differing

HEADS = ("attack", "alone", "Ditto", "its aggregator", "Hush", "its aggregator", "Hush less Ditto")
VALID = "personal.valid_accuracy.mean@chosen_on_valid"
Runs = dict[str, list[dc.Run]]  # by label, one a seed


def label_of(method: str, attack: str, fraction: float) -> str:
    """What the runs of a method under an attack are called."""
    return method if attack == CLEAN else f"{method}, {attack} {percent(fraction)}"


def check(label: str, runs: Sequence[dc.Run], folder: Path) -> None:
    """Refuse runs of one label that are not the seeds of one row: nobody says which of them the table is of."""
    if len(dc.Comparison(runs).runs) > 1:
        names = differing([run.config for run in runs]) or ["data, model or code"]
        raise SystemExit(
            f"the runs of '{label}' in {folder} differ in {', '.join(names)}: run descant robustness with each of "
            "these settings into a folder of its own"
        )


def valid(runs: Sequence[dc.Run]) -> float:
    """The mean accuracy on validation data over seeds; where one collapsed, less than any."""
    figures = [run.summary().get(VALID, float("nan")) for run in runs if run.collapse is None]
    mean = sum(figures) / len(figures) if figures else float("nan")
    return mean if len(figures) == len(runs) and isfinite(mean) else float("-inf")


def line(runs: Runs, places: pl.DataFrame, attack: str, fraction: float) -> list[str]:
    """A row of the table: the best of each under an attack, and how far apart the two are."""
    methods, attacks = (places[name].unique(maintain_order=True).to_list() for name in ("method", "attack"))
    best = {}
    for name in ("Ditto", "Hush"):
        tried = [m for m in methods if m.startswith(f"{name}, ") and label_of(m, attack, fraction) in runs]
        if not tried:
            there = [m for m in methods if label_of(m, attack, fraction) in runs]
            raise SystemExit(
                f"there are no runs of {name} under {attack} ({percent(fraction)}): their labels begin with "
                f"'{name}, ', and there are {'; '.join(there) or 'none'}"
            )
        best[name] = max(tried, key=lambda m: valid(runs[label_of(m, attack, fraction)]))
    labels = {name: label_of(method, attack, fraction) for name, method in best.items()}
    compared = dc.Comparison(run for label in labels.values() for run in runs[label])
    means = dict(compared.table().select("method", "test_accuracy").iter_rows())
    gap = "–"  # where one of them has no figure
    for found in compared.differences(labels["Ditto"]).to_dicts():
        gap = f"{found['difference']:+.4f}"
        gap += "" if found["low"] is None else f" ({found['low']:+.4f} to {found['high']:+.4f})"
    cells = [cell for name in labels for cell in (_figure(means[labels[name]]), best[name].split(", ", 1)[1])]
    return [f"{attack}, {percent(fraction)}" if fraction else attack, alone(runs, attacks, fraction), *cells, gap]


def alone(runs: Runs, attacks: Sequence[str], fraction: float) -> str:
    """The accuracy of training alone, with as many attackers: figures are of the others.

    It was run under the first attack of the table alone, since it would be the same under the others.
    """
    called = [label_of("Local", attack, fraction) for attack in attacks if (attack == CLEAN) == (not fraction)]
    there = [label for label in called if label in runs]
    if not there:
        return "–"
    return _figure(dc.Comparison(runs[there[0]]).table()["test_accuracy"][0])


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    table = folder / "robustness.csv"
    if not table.is_file():
        raise SystemExit(f"there is no {table.name} in {folder}: give the folder that descant robustness wrote to")
    try:
        places = pl.read_csv(table).filter(pl.col("in_table")).select("method", "attack", "fraction")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SystemExit(f"{table} is no table of descant robustness: {str(error).splitlines()[0]}") from error
    wanted = {label_of(*place) for place in places.iter_rows()}
    runs: Runs = {}
    for run in finished(folder):
        if (label := run.config["label"]) in wanted:  # and not of an earlier table
            runs.setdefault(label, []).append(run)
    for label, some in runs.items():
        check(label, some, folder)
    asked = places.select("attack", "fraction").unique(maintain_order=True).iter_rows()
    lines = [line(runs, places, attack, fraction) for attack, fraction in asked]  # before a head is printed
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for cells in lines:
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
