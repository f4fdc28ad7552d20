"""Records of the engine in a file, and back: what is reported between two commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from descant.engine import Account, Collapse, Evaluated, Record, RoundRecord
from descant.files import write

_KINDS = {kind.__name__: kind for kind in (RoundRecord, Account, Evaluated, Collapse)}


def write_segment(path: Path, records: Sequence[Record]) -> None:
    """Tensors go into the file by name, the rest into its JSON, which keeps every float to the last bit."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for i, record in enumerate(records):
        entry: dict[str, Any] = {"kind": type(record).__name__, "plain": {}, "tensors": {}}
        for name, value in vars(record).items():
            inner = value if isinstance(value, dict) else {"": value}
            if inner and all(isinstance(leaf, Tensor) for leaf in inner.values()):
                tensors |= {f"{i}.{name}.{key}": leaf.detach().cpu().contiguous() for key, leaf in inner.items()}
                entry["tensors"][name] = list(inner)
            else:
                entry["plain"][name] = value
        entries.append(entry)
    write(path, lambda temporary: save_file(tensors, temporary, {"records": json.dumps(entries)}))


def read_segment(path: Path) -> list[Record]:
    with safe_open(path, "pt") as file:
        return [_record(i, entry, file) for i, entry in enumerate(json.loads(file.metadata()["records"]))]


def _record(i: int, entry: dict[str, Any], file: Any) -> Record:
    fields = entry["plain"]
    for name, keys in entry["tensors"].items():
        found = {key: file.get_tensor(f"{i}.{name}.{key}") for key in keys}
        fields[name] = found.get("", found)  # a tensor of its own, or a dict of them
    record: Record = _KINDS[entry["kind"]](**fields)
    return record
