"""What was measured before on this machine, so that the same run takes the same way, and ends in the same bits.

It lies in the file modes.json of the folder that DESCANT_CACHE names, else of ~/.cache/descant. Nothing is lost
with it but time: a file that is missing, damaged or cannot be written only means that the next run measures again.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch

from descant.files import read_json, write
from descant.version import __version__

_MOST = 500  # choices that are remembered, the latest


class Choice(NamedTuple):
    """Which way was the fastest, what was measured, and what could not be done as asked."""

    name: str
    why: str
    notes: list[str]


def recall(key: str) -> Choice | None:
    """The choice that was made before under a key."""
    return _choice(_entries().get(key))


def remember(key: str, choice: Choice) -> None:
    """Keep a choice. Of several processes that do so at once, one may have to measure again."""
    entries = _entries()
    entries.pop(key, None)  # the latest come last
    kept = dict([*entries.items(), (key, choice._asdict())][-_MOST:])
    path = _file()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda temporary: temporary.write_text(json.dumps(kept, indent=1) + "\n"))


def key_of(device: torch.device, *about: Any) -> str:
    """A name for what a choice depends on: this machine, its software, and `about` the run."""
    versions = (__version__, torch.__version__, platform.python_version())
    where = str(device) if device.type != "cuda" else torch.cuda.get_device_name(device)
    machine = (platform.machine(), _processor(), os.cpu_count(), torch.get_num_threads(), where)
    return blake2b(repr((versions, machine, about)).encode(), digest_size=16).hexdigest()


def _file() -> Path:
    return Path(os.environ.get("DESCANT_CACHE") or "~/.cache/descant").expanduser() / "modes.json"


def _entries() -> dict[str, Any]:
    try:
        found = read_json(_file())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _choice(entry: Any) -> Choice | None:
    """An entry of the file, if it is one."""
    if not isinstance(entry, dict) or set(entry) != set(Choice._fields):
        return None
    choice = Choice(**entry)
    texts = [choice.name, choice.why, *(choice.notes if isinstance(choice.notes, list) else [None])]
    return choice if all(isinstance(text, str) for text in texts) else None


def _processor() -> str:
    """The processor's name, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
