"""What a run was begun with, and whether a process that would go on with it has the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from descant.errors import ResumeError
from descant.sealed import damaged

_START = {"fingerprints": dict, "model": str, "secret": int}
_CONFIG = {"versions": dict, "execution": dict, "evaluate": dict, "method": dict, "rounds": int, "label": str}
THINGS = {
    "data": "other data",
    "model": "another model (its layers, its shapes or its forward differ)",
    "loss": "another loss (its code differs)",
    "metric": "another metric (its code differs)",
    "method": "another method (its code differs)",
    "aggregator": "another aggregator (its code differs)",
    "codec": "another codec (its code differs)",
    "downlink": "another codec of broadcasts (its code differs)",
    "attacks": "other attacks (their code differs)",
}


def refuse_unknown(path: Path, start: dict[str, Any]) -> None:
    """Refuse what no run of this format began with, before anything of it is used."""
    found = start.get("config")
    config = found if isinstance(found, dict) else {}
    known = all(isinstance(start.get(f), t) for f, t in _START.items())
    if not known or not all(isinstance(config.get(f), t) for f, t in _CONFIG.items()):
        raise damaged(path, "does not say what a run follows from")


def refuse_other(
    folder: Path, started: dict[str, Any], config: dict[str, Any], fingerprints: dict[str, str]
) -> None:
    """Refuse to go on in a folder, if data, settings or code are others than those of its start.json."""
    then, prints = started["config"], dict(fingerprints)
    _refuse_other_prints(folder, started, {"data": prints.pop("data")})
    same = then["method"].get("name") == config["method"]["name"]
    if same and then.get("revision", 1) != config.get("revision", 1):
        raise ResumeError(
            f"{folder} was begun by a descant whose method '{config['method']['name']}' computed otherwise: "
            "go on with that one, or begin anew with overwrite"
        )
    for field, now in json.loads(json.dumps(config)).items():  # as a file has it
        if field not in ("revision", "execution", "versions", "settings") and _differ(then.get(field, now), now):
            raise ResumeError(
                f"{folder} was begun with {field} = {then[field]!r}, and this is {now!r}: "
                "resume with the same, or begin anew with overwrite"
            )
    _refuse_other_prints(folder, started, prints)


def _refuse_other_prints(folder: Path, started: dict[str, Any], prints: dict[str, str]) -> None:
    for what, told in THINGS.items():  # a model's tells the code of its layers, too
        if what in prints and started["fingerprints"].get(what) != prints[what]:
            raise ResumeError(f"{folder} was begun with {told}: hand in the same to resume")


def _differ(then: Any, now: Any) -> bool:
    """Whether what a run follows from is another now.

    A setting that is not there came later, also one of a method, and the run has it as it is by default. What is
    noted of data follows from them.
    """
    if not isinstance(then, dict) or not isinstance(now, dict):
        return bool(then != now)
    names = (then.keys() | now.keys()) - {"notes"}
    return any(name not in now or _differ(then.get(name, now[name]), now[name]) for name in names)
