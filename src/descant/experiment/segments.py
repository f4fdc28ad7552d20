"""Records of the engine in a file, and back: what is reported between two commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from descant.engine import Account, Collapse, Evaluated, HealthRecord, Record, RoundRecord
from descant.sealed import damaged, read_tensors, write_tensors

_KINDS = {kind.__name__: kind for kind in (RoundRecord, HealthRecord, Account, Evaluated, Collapse)}


def write_segment(path: Path, records: Sequence[Record]) -> str:
    """Tensors go into the file by name, the rest into its JSON, which keeps every float to the last bit.

    Returns the file's checksum.
    """
    tensors: dict[str, Tensor] = {}
    entries = []
    for i, record in enumerate(records):
        entry: dict[str, Any] = {"kind": type(record).__name__, "plain": {}, "tensors": {}}
        for name, value in vars(record).items():
            inner = value if isinstance(value, dict) else {"": value}
            if inner and all(isinstance(leaf, Tensor) for leaf in inner.values()):
                tensors |= {f"{i}.{name}.{key}": leaf for key, leaf in inner.items()}
                entry["tensors"][name] = list(inner)
            else:
                entry["plain"][name] = value
        entries.append(entry)
    return write_tensors(path, tensors, {"records": entries})


def read_segment(path: Path) -> tuple[list[Record], str]:
    """The records of a file, and its checksum."""
    tensors, about, checksum = read_tensors(path)
    try:
        return [_record(i, entry, tensors) for i, entry in enumerate(about["records"])], checksum
    except (LookupError, TypeError, AttributeError):
        raise damaged(path, "holds no records that this version knows") from None


def _record(i: int, entry: dict[str, Any], tensors: Mapping[str, Tensor]) -> Record:
    fields = entry["plain"]
    for name, keys in entry["tensors"].items():
        found = {key: tensors[f"{i}.{name}.{key}"] for key in keys}
        fields[name] = found.get("", found)  # a tensor of its own, or a dict of them
    record: Record = _KINDS[entry["kind"]](**fields)
    return record
