"""A first comparison that turns one dial: how alike the clients are, on digits that come along.

Where clients differ much and have enough data they had better train alone; where they are alike they had better
share one model; in between personalization pays. Every method has as many trials, chosen among on validation data.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from descant.cli.progress import Progress
from descant.cli.tables import comparison_table
from descant.experiment import Run
from descant.experiment.grid import Grid, comparison
from descant.report import Report
from descant.report.advice import advice
from descant.report.place import check_page

_STEPS, _ROUNDS = 10, 12
_TRIED = range(100, 102)  # the draws that settings are chosen on
_SEEDS = range(200, 208)  # the draws that are reported: none of them was looked at while the trials were made up
_VALID = "personal.valid_accuracy.mean@chosen_on_valid"
_NEXT = ("list methods",)
_IN_A_CHECKOUT = (  # where the files are
    "run examples/first.yaml --set method.lam=0.1",
    "compare examples/compare.yaml",
    "report runs/compare -o compare.html",
)


def _trials() -> dict[str, list[dict[str, Any]]]:
    """Three settings of every method, at the same number of gradients a client."""
    work: dict[str, Any] = {"steps": _STEPS, "batch": None}
    half = work | {"steps": _STEPS // 2, "lr": 0.7}  # Ditto trains two models: each gets half of the work
    solver = {"name": "fedavg", **half, "lr": 2.0}  # an average stands a larger rate than one client's model
    return {
        "Local": [{"name": "local", "lr": lr, **work} for lr in (0.3, 1.0, 3.0)],
        "Ditto": [{"name": "ditto", "lam": lam, "solver": solver, **half} for lam in (0.03, 0.1, 0.3)],
        "FedAvg": [{"name": "fedavg", "lr": lr, **work} for lr in (0.3, 1.0, 3.0)],
    }


@dataclass(frozen=True)
class Panel:
    """One position of the dial."""

    key: str
    title: str
    data: Mapping[str, Any]


PANELS = (
    Panel("differ", "Clients differ much: 20 clients, two digits each", {"clients": 20, "labels": 2}),
    Panel("between", "In between: 60 clients, three digits and few images each", {"clients": 60, "labels": 3}),
    Panel(
        "alike",
        "Clients are alike: 50 clients with all kinds of digits (Dirichlet 1.0)",
        {"partition": {"name": "dirichlet", "clients": 50, "alpha": 1.0}},
    ),
)


def run_demo(folder: Path, console: Console, quiet: bool) -> None:
    """Run the comparisons, print their tables with a sentence each, write the report, and say what to try next."""
    check_page(folder / "report.html")  # before anything runs
    kept: list[Run] = []
    for panel in PANELS:
        with Progress(quiet) as progress:
            methods = {name: _chosen(panel, name, folder, progress) for name in _trials()}
            results = list(progress.run(_grid(panel, methods, _SEEDS, folder / panel.key)))
        runs = [run for _, run in results]
        comparison_table(results, console, title=panel.title)
        console.print(advice(Report(runs).experiments[0]), style="bold", markup=False)
        console.print()
        kept += runs
    command = sys.argv[0] if sys.argv[0].endswith("descant") else "descant"  # as it was called
    more = _IN_A_CHECKOUT if Path("examples/first.yaml").is_file() else ()
    following = [f"{command} {words}" for words in (*_NEXT, *more)]
    report = Report(
        kept,
        "descant: train alone, personalize, or share one model?",
        titles=[panel.title for panel in PANELS],
        verdict=advice,
        closing=following,
    )
    [page] = report.save(folder / "report.html")
    console.print(f"The report is {page.resolve()}: open it in a browser. Try next:", soft_wrap=True)
    for line in following:
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _chosen(panel: Panel, name: str, folder: Path, progress: Progress) -> dict[str, Any]:
    """The trial with the best mean accuracy on validation data, on draws that are not reported."""
    trials = {f"{name}, trial {i + 1}": spec for i, spec in enumerate(_trials()[name])}
    found: dict[str, list[float]] = {label: [] for label in trials}
    for cell, run in progress.run(_grid(panel, trials, _TRIED, folder / "trials" / panel.key)):
        found[cell.label].append(run.summary()[_VALID])
    return trials[max(found, key=lambda label: sum(found[label]))]


def _grid(panel: Panel, methods: dict[str, dict[str, Any]], seeds: range, folder: Path) -> Grid:
    settings = {
        "data": {"name": "digits", "seed": "run", **panel.data},  # every seed deals the digits anew
        "methods": methods,
        "seeds": list(seeds),
        "rounds": _ROUNDS,
        "evaluate": {"every": 2},
        "mode": "vmap",  # to measure which is fastest would take longer than these runs
        "threads": 1,  # the models are small: more would only wait for each other
    }
    # What is said follows from all runs: without one, another trial might be chosen, or another advice given.
    return replace(comparison(settings, folder), whole=True)
