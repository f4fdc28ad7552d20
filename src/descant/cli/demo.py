"""A first comparison, on data that comes along."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from descant.cli.progress import Progress
from descant.cli.tables import comparison_table
from descant.experiment.grid import comparison

_STEPS = 20  # minibatch gradients a client and round, the same for every method


def _methods(lr: float, clients: int) -> dict[str, Any]:
    """Every family at the same number of gradients; the other settings are sensible, and tuned for nobody."""
    work = {"lr": lr, "steps": _STEPS}
    half = {"lr": lr, "steps": _STEPS // 2}  # Ditto trains two models: each gets half of the work
    return {
        "Local": {"name": "local", **work},
        "FedAvg": {"name": "fedavg", **work},
        "FedProx": {"name": "fedprox", **work, "mu": 0.1},
        "Ditto": {"name": "ditto", **half, "lam": 0.1, "solver": {"name": "fedavg", **half}},
        "pFedMe": {"name": "pfedme", **work, "eta": 0.5, "lam": 0.5},
        "lp-proj-1": {"name": "lp-proj", **work, "p": 1, "lam": 0.1},
        "lp-proj-2": {"name": "lp-proj", **work, "p": 2, "lam": 0.1},
        "FedGeoMed+": {"name": "fedgeomed+", **work, "sigma": 0.1},
        "FLAME": {"name": "flame", **work, "batch": 64, "lam": 0.1, "rho": 0.1 / clients},
    }


DEMOS: dict[str, dict[str, Any]] = {
    "digits: 20 clients with two digits each, logistic regression": {
        "data": {"name": "digits", "clients": 20, "labels": 2},
        "methods": _methods(lr=0.1, clients=20),
        "rounds": 20,
        "cohort": 0.5,
        "seeds": 3,
        "threads": 1,  # the models are small: more would only wait for each other
    },
    "synthetic(0, 0): 100 clients, logistic regression": {
        "data": {"name": "synthetic", "alpha": 0.0, "beta": 0.0},
        "methods": _methods(lr=0.05, clients=100),
        "rounds": 20,
        "cohort": 0.5,
        "evaluate": {"every": 2},
        "seeds": 3,
        "threads": 1,  # the models are small: more would only wait for each other
    },
}


def run_demo(folder: Path, console: Console, quiet: bool) -> None:
    """Run the comparisons, print their tables, write the report, and say what to try next."""
    from descant.report import Report

    for title, values in DEMOS.items():
        grid = comparison(values, folder / values["data"]["name"])
        with Progress(quiet) as progress:
            results = list(progress.run(grid))
        comparison_table(results, console, title=title)
        console.print()
    [page] = Report.of(folder, title="descant: a first comparison").save(folder / "report.html")
    command = sys.argv[0] if sys.argv[0].endswith("descant") else "descant"  # as it was called
    console.print(f"The report is {page.resolve()}: open it in a browser. Try next:", soft_wrap=True)
    console.print(f"  {command} list methods")
    console.print(f"  {command} run examples/first.yaml --set method.lam=0.1")
    console.print(f"  {command} compare examples/compare.yaml")
    console.print(f"  {command} report runs/compare -o compare.html")
