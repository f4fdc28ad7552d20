"""Small runs into a folder, for tests of whose files lie in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import descant as dc


def run(data: dc.FederatedData, out: Path, **settings: Any) -> dc.Run:
    how: dict[str, Any] = {"rounds": 2, "mode": "vmap", "commit": 1} | settings
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), data, dc.methods.Local(steps=1), out=out, **how)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
