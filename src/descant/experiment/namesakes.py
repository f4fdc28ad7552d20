"""Runs of the same name: which of them are the seeds of one row, and which followed from something else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from descant.experiment.declaration import Settings, declared
from descant.experiment.run import Run

_HOW = (name for name, setting in declared(Settings).items() if setting.role == "how")  # a run was carried out
# What may differ between the seeds of one row.
_INCIDENTAL = ("seed", "execution", "versions", "label", "settings", *_HOW)
_CODE = ("method", "aggregator", "codec", "downlink", "attacks")  # parts that may be of the user's own


def rows_of(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs on the same data by the label of their row, one a seed: those of one label, of the same settings and the
    same code. The same run counts once; of two that say the same of themselves it is the later one."""
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        label = str(run.config.get("label") or run.config["method"]["name"])
        alike.setdefault((label, text([comparable(run.config), run.config.get("task")])), []).append(run)
    found: dict[tuple[str, str, str], dict[Any, Run]] = {}
    for (label, settings), some in alike.items():
        for run, code in zip(some, _codes(some), strict=True):
            # Without a folder a run does not say what its data held: then none stands for another.
            itself = None if "fingerprint" in run.config["data"] else id(run)
            found.setdefault((label, settings, code), {})[key_of(run), itself] = run
    told = [(label, next(iter(seeds.values())).config, code) for (label, _, code), seeds in found.items()]
    return {label: list(seeds.values()) for label, seeds in zip(_distinct(told), found.values(), strict=True)}


def by_edition(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs on data of the same name and settings, in the order in which they ended, by what the data held.

    Data that hold something else than others of the same draw did before are a later edition. A run that cannot be
    compared with others, or does not say what its data held, is on the newest edition of its time.
    """
    draws: dict[str, set[str]] = {}  # by what the data held
    for run in runs:
        if (held := _held(run)) is not None:
            draws.setdefault(held, set()).update(_draws(run))
    known: dict[str, int] = {}  # the edition of data that held this
    found: list[list[Run]] = [[]]
    for run in runs:
        n = len(found) - 1
        if (held := _held(run)) is not None:
            before = [edition for other, edition in known.items() if draws[other] & draws[held]]
            n = known.setdefault(held, max(before) + 1 if before else n)
        if n == len(found):
            found.append([])
        found[n].append(run)
    return found


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
    flats = [flat(comparable(config)) for config in configs]
    names = dict.fromkeys(name for leaves in flats for name in leaves)
    return [name for name in names if len({text(leaves.get(name)) for leaves in flats}) > 1]


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


def _codes(runs: Sequence[Run]) -> list[str]:
    """The code of each run, where it is known to differ; that of two versions of Python cannot be compared."""
    codes = [_code(run) for run in runs]
    pythons = [str(run.config.get("versions", {}).get("python")).rpartition(".")[0] for run in runs]
    told = {(python, code) for python, code in zip(pythons, codes, strict=True) if code}
    return codes if len(told) > len({python for python, _ in told}) else [""] * len(runs)


def _code(run: Run) -> str:
    """What tells the user's own code in a run, in short; of descant's own, versions tell it."""
    own = {name: run.fingerprints.get(name) for name in _CODE if _imported(run.config.get(name))}
    return blake2b(text(own).encode(), digest_size=2).hexdigest() if any(own.values()) else ""


def _imported(spec: Any) -> bool:
    """Whether a spec, or one in it, names a part by an import path."""
    if isinstance(spec, Mapping):
        return ":" in str(spec.get("name")) or any(map(_imported, spec.values()))
    return isinstance(spec, list | tuple) and any(map(_imported, spec))


def _distinct(labelled: Sequence[tuple[str, dict[str, Any], str]]) -> list[str]:
    """Labels that differ: where one was given to several configurations, with what tells them apart."""
    labels = []
    for label, config, code in labelled:
        namesakes = [(other, of) for name, other, of in labelled if name == label]
        leaves = flat(comparable(config))
        differ = differing([other for other, _ in namesakes])
        parts = [f"{name.removeprefix('method.')}={leaves.get(name)}" for name in differ[:3]]
        if code and len({of for other, of in namesakes if text(comparable(other)) == text(comparable(config))}) > 1:
            parts.append(f"code {code}")
        labels.append(f"{label} ({', '.join(parts)})" if parts else label)
    for i, label in enumerate(labels):
        if label in labels[:i]:
            labels[i] = f"{label} #{labels[: i + 1].count(label)}"
    return labels
