"""Whether the files that data are read from may have changed, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from inspect import signature
from pathlib import Path
from typing import Any

from descant.datasets.sources import folder_of
from descant.kinds import CATALOG


def stamp(spec: Mapping[str, Any]) -> str | None:
    """A hash of the names, sizes and times of all files that the data of a spec can come from.

    It is the same for data that are generated, and None where nobody knows (a function of one's own). As long as it
    stays the same, so do the data; where it changes, the data may be others.
    """
    make = CATALOG["datasets"].get(spec["name"])
    if make is None:
        return None
    takes = signature(make).parameters
    folders = [Path(spec["folder"])] if spec.get("folder") is not None else []
    folders += [folder_of("", spec.get("root"))] if "root" in takes else []
    digest = blake2b(digest_size=16)
    for folder in folders:
        for name, size, time in sorted(_files(folder)):
            digest.update(f"{name}\0{size}\0{time}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    for where, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = os.path.join(where, name)
            if os.path.exists(path):  # a link may lead nowhere
                about = os.stat(path)
                yield path, about.st_size, about.st_mtime_ns
