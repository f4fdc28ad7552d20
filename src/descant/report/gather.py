"""Which runs a report is about, and which of them may stand side by side."""

from __future__ import annotations

import json
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
from descant.experiment.declaration import Settings, declared
from descant.experiment.folder import MARKER, RUN, START, headless
from descant.experiment.goingon import resume_command

_HOW = (name for name, setting in declared(Settings).items() if setting.role == "how")  # a run was carried out
# What may differ between the seeds of one entry.
_INCIDENTAL = ("seed", "execution", "versions", "label", "settings", *_HOW)

_MOST = 3  # settings that a title tells
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
        return [_key(run) for run in self.runs]

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

    Those with other malicious clients are an experiment of their own, since figures are of the benign ones; `pages`
    are where all of them stand side by side.
    """
    if not runs:
        raise SettingError("a report needs at least one run")
    by_problem: dict[tuple[str, str], dict[tuple[str, str], dict[str, Run]]] = {}
    for run in runs:
        entries = by_problem.setdefault((_text(_problem(run.config)), _attackers(run)), {})
        seeds = entries.setdefault((_label(run.config), _text(_comparable(run.config))), {})
        seeds[_key(run)] = run  # of two that say the same of themselves the later one, whose code may be another
    found, problems = [], [problem for problem, _ in by_problem]
    for (problem, attackers), entries in by_problem.items():
        labels = _distinct([(label, next(iter(seeds.values())).config) for (label, _), seeds in entries.items()])
        rows = [Entry(label, tuple(s.values())) for label, s in zip(labels, entries.values(), strict=True)]
        about, split = rows[0].config["data"], problems.count(problem) > 1
        title = f"{about['name']}, {attackers}" if split else str(about["name"])
        found.append((title, tuple(rows), _told_apart(pages) if split else ()))
    titles = _numbered(_told_from_namesakes([(title, rows[0].config) for title, rows, _ in found]))
    keys = _numbered([_slug(title) for title in titles], "{}-{}")
    named = zip(titles, keys, found, strict=True)
    return [Experiment(title, rows, key, first, notes) for title, key, (_, rows, notes) in named]


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; the name of a spec stands for the spec itself."""
    if not isinstance(value, dict):
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, inner in value.items():
        name = prefix if key == "name" and prefix else f"{prefix}.{key}" if prefix else str(key)
        leaves |= flat(inner, name)
    return leaves


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The dotted names of the settings in which some configurations differ."""
    flats = [flat(_comparable(config)) for config in configs]
    names = dict.fromkeys(name for leaves in flats for name in leaves)
    return [name for name in names if len({_text(leaves.get(name)) for leaves in flats}) > 1]


def _key(run: Run) -> str:
    """The seed of a run and the draw of its data; what was noted of them may be more than it was."""
    return _text([run.config["seed"], {k: told for k, told in run.config["data"].items() if k != "notes"}])


def _problem(config: dict[str, Any]) -> Any:
    data = config["data"]
    settings = {name: value for name, value in data["settings"].items() if name != "seed"}
    return [data["name"], data["clients"], settings, config["task"]]


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


def _comparable(config: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in config.items() if name not in (*_INCIDENTAL, "data", "task")}
    settings = config["data"]["settings"]
    return kept | {"data": {name: value for name, value in settings.items() if name != "seed"}}


def _label(config: dict[str, Any]) -> str:
    return str(config.get("label") or config["method"]["name"])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _distinct(labelled: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Labels that differ: where one was given to several configurations, with what tells them apart."""
    labels = []
    for label, config in labelled:
        namesakes = [other for name, other in labelled if name == label]
        leaves = flat(_comparable(config))
        parts = [f"{name.removeprefix('method.')}={leaves.get(name)}" for name in differing(namesakes)[:3]]
        labels.append(f"{label} ({', '.join(parts)})" if parts else label)
    for i, label in enumerate(labels):
        if label in labels[:i]:
            labels[i] = f"{label} #{labels[: i + 1].count(label)}"
    return labels


def _told_from_namesakes(titled: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Titles that say, where several are the same, what differs in the settings of their data and their models."""
    found = []
    for title, config in titled:
        namesakes = [_about(other) for name, other in titled if name == title]
        own = _about(config)
        differ = [name for name in own if len({_text(other.get(name)) for other in namesakes}) > 1]
        parts = [f"{name} {str(own[name])[:_LONGEST_VALUE]}" for name in differ if own[name] is not None]
        found.append(f"{title} ({', '.join(parts[:_MOST])})" if parts else title)
    return found


def _about(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the data and the model by name, without the seed; a module itself is too long to tell."""
    data, task = config["data"], config["task"]
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
