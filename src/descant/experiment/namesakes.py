"""Runs of the same name: which of them are the seeds of one row, and which followed from something else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, Self

from descant.experiment.declaration import Settings, declared
from descant.experiment.run import Run

_HOW = (name for name, setting in declared(Settings).items() if setting.role == "how")  # a run was carried out
# What may differ between the seeds of one row.
_INCIDENTAL = ("seed", "execution", "versions", "label", "settings", *_HOW)
_ACTING = ("method", "aggregator", "codec", "downlink", "attacks")  # parts that may be of the user's own
_TASK = ("model", "loss", "metric")
_LAYERS = "layers"  # of the user's own, in a model: their code does not follow the data
_MOST = 3  # settings that a label tells, where they are enough
_SHORT = 4  # letters that it tells of a fingerprint, where they are enough
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class _Row:
    """The runs of one label that followed from the same."""

    label: str
    settings: dict[str, Any]
    prints: dict[str, str]  # of the model, and of code where that is known to differ
    runs: dict[Any, Run] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, code: Mapping[str, str]) -> Self:
        """The row that a run belongs to."""
        label = str(run.config.get("label") or run.config["method"]["name"])
        task = dict(run.config.get("task", {}))
        # A function that a module shows lies elsewhere in every process, and is the same.
        shown = _ADDRESS.sub("", str(task.pop("model", None)))
        model = blake2b(shown.encode(), digest_size=16).hexdigest()
        return cls(label, flat(comparable(run.config)) | task, {"model": model, **code})

    @property
    def key(self) -> str:
        # What was no setting yet when a run was made is nothing in later ones.
        settings = {name: value for name, value in self.settings.items() if value is not None}
        return text([self.label, settings, self.prints])


def rows_of(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs on the same data by the label of their row, one a seed: those of one label, of the same settings, the
    same model and the same code. The same run counts once; of two that say the same of themselves it is the one
    that ended later."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(_Row.of(run, {}).key, []).append(run)
    rows: dict[str, _Row] = {}
    for some in alike.values():
        for run, code in zip(some, _codes(some), strict=True):
            row = _Row.of(run, code)
            # Without a folder a run does not say what its data held: then none stands for another.
            itself = None if "fingerprint" in run.config["data"] else id(run)
            there = rows.setdefault(row.key, row).runs
            before = there.get((key_of(run), itself))
            there[key_of(run), itself] = run if before is None or run.ended >= before.ended else before
    found = list(rows.values())
    return {label: list(row.runs.values()) for label, row in zip(_labels(found), found, strict=True)}


def by_edition(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs on data of the same name and settings by what the data held, the oldest data first.

    Data that hold something else than others of the same draw did in runs that ended before are a later edition. A
    run that cannot be compared with others, or does not say what its data held, is on the newest one of its time.
    """
    draws: dict[str, set[str]] = {}  # by what the data held
    for run in runs:
        if (held := _held(run)) is not None:
            draws.setdefault(held, set()).update(_draws(run))
    known: dict[str, int] = {}  # the edition of data that held this
    of: dict[int, int] = {}  # the edition of each run
    newest = 0
    for run in sorted(runs, key=lambda run: run.ended):
        n = newest
        if (held := _held(run)) is not None:
            before = [edition for other, edition in known.items() if draws[other] & draws[held]]
            n = known.setdefault(held, max(before) + 1 if before else n)
        of[id(run)], newest = n, max(n, newest)
    return [[run for run in runs if of[id(run)] == n] for n in range(newest + 1)]


def key_of(run: Run) -> str:
    """The seed of a run and the draw of its data; what was noted of them may be more than it was."""
    return text([run.config["seed"], {k: told for k, told in run.config["data"].items() if k != "notes"}])


def comparable(config: dict[str, Any]) -> dict[str, Any]:
    """What the runs of a row have in common."""
    kept = {name: value for name, value in config.items() if name not in (*_INCIDENTAL, "data", "task")}
    settings = config["data"]["settings"]
    return kept | {"data": {name: value for name, value in settings.items() if name != "seed"}}


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The dotted names of the settings in which some configurations differ."""
    return _apart([flat(comparable(config)) for config in configs])


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; the name of a spec stands for the spec itself."""
    if not isinstance(value, dict):
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, inner in value.items():
        name = prefix if key == "name" and prefix else f"{prefix}.{key}" if prefix else str(key)
        leaves |= flat(inner, name)
    return leaves


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _held(run: Run) -> str | None:
    """The fingerprint of what the data of a run held; a run without a folder does not say."""
    found: str | None = run.config["data"].get("fingerprint")
    return found


def _draws(run: Run) -> set[str]:
    """What names the draw of a run's data: the run's seed with theirs and, where a settings file says that they are
    the same for every run, theirs alone. In Python a function of the run's seed may have made them, unsaid."""
    seed = run.config["data"]["settings"].get("seed")
    spec = (run.config.get("settings") or {}).get("data", {"seed": "run"})
    if spec.get("seed") == "run":
        return {text([run.config["seed"], seed])}
    seed = spec.get("seed", seed)
    return {text([run.config["seed"], seed]), text(seed)}


def _codes(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The fingerprints of the code of each run, by what it is of, where they are known to differ."""
    codes: list[dict[str, str]] = [{} for _ in runs]
    for part in (*_ACTING, *_TASK, _LAYERS):
        prints = [_print(run, part) for run in runs]
        told = {(_given(run, part), hashed) for run, hashed in zip(runs, prints, strict=True) if hashed}
        if len(told) > len({given for given, _ in told}):
            name = "code" if part == "method" else f"code of the {part}"
            for code, hashed in zip(codes, prints, strict=True):
                code |= {name: hashed} if hashed else {}
    return codes


def _print(run: Run, part: str) -> str | None:
    """The fingerprint of a part's code; that of descant's own parts is told by its version."""
    told = part in (*_TASK, _LAYERS) or _imported(run.config.get(part))
    return run.fingerprints.get(part) if told else None


def _given(run: Run, part: str) -> str:
    """What must be the same for fingerprints of a part to be compared: the version of Python, which has a syntax of
    its own, and for a task those of torch and descant, which layers are of, and the data, which a model is made to
    fit. (The code of the user's own layers does not follow the data.)"""
    versions = run.config.get("versions", {})
    python = str(versions.get("python")).rpartition(".")[0]
    held = run.config["data"].get("fingerprint")
    return text([python, versions.get("torch"), versions.get("descant"), held] if part in _TASK else python)


def _imported(spec: Any) -> bool:
    """Whether a spec, or one in it, names a part by an import path."""
    if isinstance(spec, Mapping):
        return ":" in str(spec.get("name")) or any(map(_imported, spec.values()))
    return isinstance(spec, list | tuple) and any(map(_imported, spec))


def _apart(leaves: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names that some have otherwise than others."""
    names = dict.fromkeys(name for each in leaves for name in each)
    return [name for name in names if len({text(each.get(name)) for each in leaves}) > 1]


def _labels(rows: Sequence[_Row]) -> list[str]:
    """Labels that differ: where one was given to several rows, with what tells them apart."""
    namesakes: dict[str, list[_Row]] = {}
    for row in rows:
        namesakes.setdefault(row.label, []).append(row)
    apart = {label: _telling(some) for label, some in namesakes.items()}
    parts = [_parts(row, namesakes[row.label], *apart[row.label]) for row in rows]
    taken = {row.label for row, told in zip(rows, parts, strict=True) if not told}  # as somebody chose them
    labels: list[str] = []
    for row, told in zip(rows, parts, strict=True):
        label = f"{row.label} ({', '.join(told)})" if told else row.label
        while told and label in taken:
            label += " #2"
        taken.add(label)
        labels.append(label)
    return labels


def _telling(namesakes: Sequence[_Row]) -> tuple[list[str], int, int]:
    """The names in which rows of one label differ, how many of them are settings, and how many it takes."""
    settings, prints = (_apart([getattr(each, what) for each in namesakes]) for what in ("settings", "prints"))
    names = [*settings, *prints]
    told = [[text((each.settings | each.prints).get(name)) for name in names] for each in namesakes]
    takes = (n for n in range(len(names)) if len({tuple(each[:n]) for each in told}) == len(told))
    return names, len(settings), max(min(_MOST, len(settings)), next(takes, len(names)))


def _parts(row: _Row, namesakes: Sequence[_Row], names: list[str], settings: int, n: int) -> list[str]:
    """What tells a row from others of its label: settings and, where these do not, its model and its code."""
    parts = [f"{name.removeprefix('method.')}={row.settings.get(name)}" for name in names[:settings][:n]]
    for name in names[settings:n]:
        if name in row.prints:
            parts.append(f"{name} {_short(row.prints[name], {each.prints.get(name, '') for each in namesakes})}")
    return parts


def _short(hashed: str, others: set[str]) -> str:
    """The first letters of a fingerprint, as many as tell it from others."""
    return next(hashed[:n] for n in count(_SHORT) if len({other[:n] for other in others}) == len(others))
