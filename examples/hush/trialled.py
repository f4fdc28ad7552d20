"""What finished trials came to, each held against the settings that it was to be run with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from finished import readable

import descant as dc
from descant.experiment.grid import comparison
from descant.experiment.namesakes import flat, text

WRITTEN = ("data", "model")  # of these a run says what was written alone, and of the rest all there is
APART = ("seed", "precision")  # of a run, and of how exactly it was computed
MOST = 3  # settings that are named


def accuracies(
    name: str, folders: list[Path], asked: Callable[[str], dict[str, Any] | None]
) -> dict[str, dict[int, float]]:
    """Validation accuracy by trial and seed: less than any where a run collapsed.

    `asked` gives a trial's settings as a file has them, or None where there is no such trial. A run that had other
    settings is refused, and so is a trial that was run twice with the same seed: nobody says which of them counts.
    """
    found: dict[str, dict[int, float]] = {}
    at: dict[tuple[str, int], Path] = {}
    for path, run in (each for folder in folders for each in readable(folder)):
        trial, seed = str(run.config["label"]), run.config["seed"]
        if (wanted := asked(trial)) is None:
            raise SystemExit(f"{path} holds '{trial}', which is no trial of {name}: give folders of trials alone")
        if apart := otherwise(run, wanted):
            raise SystemExit(
                f"{path} is not the trial '{trial}' of {name}, which has {'; '.join(apart[:MOST])}: "
                "give folders of trials alone"
            )
        if (trial, seed) in at:
            raise SystemExit(
                f"{at[trial, seed]} and {path} both hold '{trial}' with seed {seed}: leave one of them out"
            )
        at[trial, seed] = path
        valid = run.summary().get("personal.valid_accuracy.mean@chosen_on_valid", float("-inf"))
        found.setdefault(trial, {})[seed] = valid if run.collapse is None else float("-inf")
    return found


def of_all_seeds(tried: dict[str, dict[int, float]]) -> tuple[int, dict[str, dict[int, float]]]:
    """How many seeds the trials of a method have, and those that have them all: the others are left out by name.

    These are as many as any of its trials has, since a user may have asked for other seeds than the program does.
    """
    seeds = max(map(len, tried.values()))
    for trial, by_seed in tried.items():
        if len(by_seed) < seeds:
            print(f"# left out, since it was tried on {len(by_seed)} of {seeds} seeds: {trial}", file=sys.stderr)
    return seeds, {trial: by_seed for trial, by_seed in tried.items() if len(by_seed) == seeds}


def otherwise(run: dc.Run, wanted: dict[str, Any]) -> list[str]:
    """The settings of a trial that a run had otherwise, but for its seed and how it was carried out."""
    cell = comparison(wanted).cells[0]
    plain = {name: value for name, value in cell.settings.plain("result").items() if name not in APART}
    said = run.config.get("settings") or {}
    now, then = flat(plain), flat({name: said[name] for name in plain if name in said})
    # What was no setting yet when the run was made cannot be compared.
    names = [n for n in now | then if n.split(".")[0] in WRITTEN or (n in now and n in then)]
    apart = [n for n in names if text(now.get(n)) != text(then.get(n))]
    found = [f"{n} = {now.get(n)} and not {then.get(n)}" for n in apart]
    # What its method computes may be something else since then, in the same settings.
    before, revision = run.config.get("revision", 1), cell.settings.method.revision
    return found if before == revision else [*found, f"a method of revision {revision} and not {before}"]
