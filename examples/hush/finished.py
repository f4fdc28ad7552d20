"""The finished runs of a folder, which the programs beside this one read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import descant as dc
from descant.experiment.namesakes import comparable, flat, text

MOST = 40  # letters of a value that is told


def readable(folder: Path) -> Iterator[tuple[Path, dc.Run]]:
    """Each run of the folder that `descant compare` wrote to, with its own folder. What cannot be read is left out,
    and named."""
    if (folder / "run.json").is_file():
        raise SystemExit(f"{folder} is a single run: give the folder that holds it, {folder.resolve().parent}")
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


def check_alike(runs: Sequence[dc.Run], folder: Path) -> None:
    """Refuse runs of which no table can be: on other data, or with another model, length, cohort or attacks.

    Methods may differ in the rest, as in their codecs.
    """
    problems = [_problem(run.config) for run in runs]
    names = dict.fromkeys(name for problem in problems for name in problem)
    if len({problem["data"] for problem in problems}) > 1:  # whose settings have nothing to do with each other
        names = dict.fromkeys(name for name in names if not name.startswith("data."))
    told = []
    for name in names:
        values = dict.fromkeys(text(problem.get(name, "none")).strip('"') for problem in problems)
        if len(values) > 1:
            told.append(name if any(len(value) > MOST for value in values) else f"{name} ({' or '.join(values)})")
    if told:
        raise SystemExit(
            f"the runs in {folder} cannot be compared, since they differ in {', '.join(told)}: "
            "give a folder of one comparison"
        )


def _problem(config: dict[str, Any]) -> dict[str, Any]:
    """What the methods of a comparison have in common, by dotted name, the seed of the data apart."""
    names = ["data", "rounds", "cohort"]
    names += ["attacks", "malicious"] if config.get("malicious") else []  # else nobody attacks
    kept = comparable(config)
    found = {"data": config["data"]["name"]} | flat({name: kept[name] for name in names if name in kept})
    # A function that a module shows lies elsewhere in every process, and is the same.
    task = config.get("task", {})
    model = re.sub(r" at 0x[0-9a-fA-F]+", "", str(task.get("model")))
    found |= {"model": model, "model's parameters": task.get("parameters")}
    # What was no setting yet when a run was made is nothing in later ones.
    return {name: value for name, value in found.items() if value is not None}
