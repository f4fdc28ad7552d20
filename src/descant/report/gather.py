"""Which runs a report is about, and which of them may stand side by side."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from descant.errors import DamagedError, LeftOutWarning, SettingError
from descant.experiment import Federation, History, Run, finished, unfinished
from descant.experiment.folder import MARKER, RUN, START, headless
from descant.experiment.goingon import resume_command
from descant.experiment.namesakes import by_edition, flat, key_of, rows_of, text

_MOST = 3  # settings that a title tells
_EDITIONS = (
    "Data of the same name and settings held other examples in later runs than in earlier ones: these have "
    "sections of their own, in the order in which the runs ended."
)
_LONGEST_VALUE, _LONGEST_KEY = 40, 80  # letters of a setting in a title, and of a title in the name of a file


@dataclass(frozen=True)
class Entry:
    """One row of a comparison: a label and its runs, one a seed."""

    label: str
    runs: tuple[Run, ...]

    @property
    def histories(self) -> list[History]:
        return [run.history for run in self.runs]

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @property
    def keys(self) -> list[str]:
        """What is common to the runs of several entries that may be paired: the seed, and the draw of the data."""
        return [key_of(run) for run in self.runs]

    @property
    def seeds(self) -> list[str]:
        """What tells the runs apart: the seed of each and, where one seed stands with several draws, its data's."""
        told = [str(run.config["seed"]) for run in self.runs]
        drawn = [run.config["data"]["settings"].get("seed") for run in self.runs]
        several = len(set(told)) < len(told)
        return [f"{seed} (data {draw})" if several else seed for seed, draw in zip(told, drawn, strict=True)]

    @property
    def collapsed(self) -> list[Run]:
        return [run for run in self.runs if run.collapse is not None]

    @cached_property
    def alike(self) -> bool:
        """Whether several seeds end with the same losses of every client, up to rounding: they drew nothing."""
        if len(self.runs) < 2 or self.collapsed or not all(h.evaluated for h in self.histories):
            return False
        losses = [
            np.concatenate(
                [v for rounds in h.evaluated.values() for c, v in rounds[max(rounds)].items() if "loss" in c]
            )
            for h in self.histories
        ]
        same = (a.shape == losses[0].shape and np.allclose(a, losses[0], 1e-4, 0.0, equal_nan=True) for a in losses)
        return all(same)

    @property
    def federation(self) -> Federation | None:
        """Who takes part, where that is the same for every seed: not where each draws its data anew."""
        first, *others = (history.federation for history in self.histories)
        draws = {run.config["data"]["settings"].get("seed") for run in self.runs}
        same = len(draws) == 1 and all(
            first.names == other.names
            and np.array_equal(first.members("all"), other.members("all"))
            and all(np.array_equal(first.sizes[p], other.sizes[p]) for p in first.sizes)
            for other in others
        )
        return first if same else None


@dataclass(frozen=True)
class Experiment:
    """Entries on the same data with the same model and the same benign clients: what may be compared.

    Rounds are chosen from `first` on. `notes` are what a reader must know of how the runs were told apart.
    """

    title: str
    entries: tuple[Entry, ...]
    key: str
    first: int = 0
    notes: tuple[str, ...] = ()

    @property
    def history(self) -> History:
        return self.entries[0].histories[0]

    @cached_property
    def model(self) -> str:
        """The model that the charts show: what clients deploy."""
        return "personal" if all("personal" in h.evaluated for e in self.entries for h in e.histories) else "shared"

    @cached_property
    def rule(self) -> str:
        """How the reported round is chosen: on validation data, where there is any."""
        histories = [history for entry in self.entries for history in entry.histories]
        histories = [history for history in histories if history.collapse is None] or histories
        chosen = all(history.best_round(self.model, "valid", self.first) is not None for history in histories)
        return "chosen_on_valid" if chosen else "last"


def find(folders: Iterable[str | Path]) -> list[Path]:
    """The finished runs in some folders, at any depth; also those that lost the file that says what they were.

    Those that are unfinished are named (`LeftOutWarning`).
    """
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise SettingError(f"{folder}: there is no such folder; give that of a run, or one with runs in it")
        # In the order in which they were finished, which is that of a comparison's own list.
        there = sorted(folder.rglob(RUN), key=lambda path: (path.stat().st_mtime_ns, path))
        lost = sorted(path.parent for path in folder.rglob(MARKER) if headless(path.parent))
        here = [folder] if finished(folder) else [path.parent for path in there if finished(path.parent)] + lost
        begun = [] if here == [folder] else sorted(p.parent for p in folder.rglob(START) if unfinished(p.parent))
        if not here:
            if begun:
                raise SettingError(f"{begun[0]} is unfinished: go on with it first ({resume_command(begun[0])})")
            raise SettingError(f"{folder} holds no finished run: there is no {RUN} of descant's in it, or below it")
        if begun:
            others = f" and {len(begun) - 1} more" if len(begun) > 1 else ""
            said = f"{begun[0]}{others}: unfinished, and left out; to go on with it: {resume_command(begun[0])}"
            warnings.warn(LeftOutWarning(said), stacklevel=3)
        found |= dict.fromkeys(path.resolve() for path in here)
    return list(found)


def load_whole(folders: Sequence[Path]) -> list[Run]:
    """The runs in some folders, without those that are damaged; these are named."""
    runs: list[Run] = []
    for i, folder in enumerate(folders):
        try:
            runs.append(Run.load(folder))
        except DamagedError as error:
            if not runs and i == len(folders) - 1:
                raise
            warnings.warn(LeftOutWarning(f"a run is left out: {error}"), stacklevel=3)
    return runs


def pages_of_robustness(folders: Iterable[Path]) -> list[Path]:
    """The pages that `descant robustness` has written beside some runs."""
    pages = (parent / "robustness.html" for parent in dict.fromkeys(folder.parent for folder in folders))
    return [page for page in pages if page.is_file()]


def gather(runs: Sequence[Run], first: int = 0, pages: Sequence[Path] = ()) -> list[Experiment]:
    """Runs as experiments: on the same data and model, with one entry a label; the same run counts once.

    Data that hold something else than they did are other data, though they have the same name. Runs with other
    malicious clients are an experiment of their own, since figures are of the benign ones; `pages`
    are where all of them stand side by side.
    """
    if not runs:
        raise SettingError("a report needs at least one run")
    by_problem: dict[str, list[Run]] = {}
    for run in runs:
        by_problem.setdefault(text(_problem(run.config)), []).append(run)
    found = []
    for alike in by_problem.values():
        editions = by_edition(alike)
        for edition in editions:
            by_attackers: dict[str, list[Run]] = {}
            for run in edition:
                by_attackers.setdefault(_attackers(run), []).append(run)
            for attackers, some in by_attackers.items():
                rows = tuple(Entry(label, tuple(seeds)) for label, seeds in rows_of(some).items())
                name, split = str(rows[0].config["data"]["name"]), len(by_attackers) > 1
                notes = (_told_apart(pages) if split else ()) + ((_EDITIONS,) if len(editions) > 1 else ())
                found.append((f"{name}, {attackers}" if split else name, rows, notes))
    titles = _numbered(_told_from_namesakes([(title, rows[0].config) for title, rows, _ in found]))
    keys = _numbered([_slug(title) for title in titles], "{}-{}")
    named = zip(titles, keys, found, strict=True)
    return [Experiment(title, rows, key, first, notes) for title, key, (_, rows, notes) in named]


def _problem(config: dict[str, Any]) -> Any:
    data = config["data"]
    settings = {name: value for name, value in data["settings"].items() if name != "seed"}
    return [data["name"], data["clients"], settings, config.get("task")]


def _attackers(run: Run) -> str:
    """Who attacks: how many, since the seed says who they are, or which, where they were named."""
    named = run.config.get("malicious")
    if isinstance(named, list | tuple) and named:
        return f"the clients {', '.join(map(str, sorted(named)))} attack"
    number = int(run.history.federation.members("malicious").sum())
    return f"{number} of {run.config['data']['clients']} clients attack" if number else "nobody attacks"


def _told_apart(pages: Sequence[Path]) -> tuple[str, ...]:
    said = "Runs with other malicious clients have a section of their own: figures are of the benign, who differ."
    where = f" All stand side by side in {', '.join(map(str, pages))}." if pages else ""
    return (f"{said}{where}",)


def _told_from_namesakes(titled: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Titles that say, where several are the same, what differs in the settings of their data and their models."""
    found = []
    for title, config in titled:
        namesakes = [_about(other) for name, other in titled if name == title]
        own = _about(config)
        differ = [name for name in own if len({text(other.get(name)) for other in namesakes}) > 1]
        parts = [f"{name} {str(own[name])[:_LONGEST_VALUE]}" for name in differ if own[name] is not None]
        found.append(f"{title} ({', '.join(parts[:_MOST])})" if parts else title)
    return found


def _about(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the data and the model by name, without the seed; a module itself is too long to tell."""
    data, task = config["data"], config.get("task", {})
    told = flat({"clients": data["clients"]} | data["settings"]) | {k: v for k, v in task.items() if k != "model"}
    return {name: value for name, value in told.items() if name != "seed"}


def _slug(title: str) -> str:
    """A title as the name of a file or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:_LONGEST_KEY].strip("-") or "data"


def _numbered(names: list[str], form: str = "{} ({})") -> list[str]:
    """Names that differ, where nothing short tells them apart."""
    return [
        form.format(name, names[: i + 1].count(name)) if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]
