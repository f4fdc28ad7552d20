"""A small run that can be interrupted, for the tests of what lies in its folder."""

from __future__ import annotations

import json
import shutil
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import descant as dc
from descant.experiment import unfinished
from descant.sealed import read_json, write_json
from tests.interrupted import interrupt

DATA = dc.data.synthetic(clients=12, samples=20, dim=4, classes=3)


class Net(torch.nn.Module):
    """Two layers, one of them frozen, running statistics, and a buffer that nothing moves."""

    def __init__(self) -> None:
        super().__init__()
        self.random, self.norm, self.head = torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)
        self.random.requires_grad_(False)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.head(torch.tanh(self.norm(self.random(inputs + self.shift))))
        return hidden


@cache
def task(seed: int = 0, net: type[torch.nn.Module] = Net) -> dc.Task:
    torch.manual_seed(seed)
    return dc.Task(net())


def begin(out: Path, stop: int | None = None, store: str = "disk", **settings: Any) -> dc.Run | None:
    """A run that is interrupted after a round, or not at all."""
    ditto = dc.methods.Ditto(lam=0.3, steps=2, batch=4, solver=dc.methods.FedAvg(steps=1, batch=5))
    how: dict[str, Any] = {"rounds": 22, "cohort": 3, "evaluate": 5, "mode": "vmap", "commit": 1} | settings
    if stop is None:
        return dc.simulate(task(), DATA, ditto, out=out, store=store, **how)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task(), DATA, ditto, out=out, store=store, progress=interrupt(stop), **how)  # type: ignore[arg-type]
    assert unfinished(out)
    return None


def resume(out: Path, seed: int = 0) -> dc.Run:
    return dc.resume(out, task(seed), DATA)


def copied(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def contents(folder: Path) -> str:
    """A hash of what lies in a folder. From the same files a run goes on to the same end: one try is enough."""
    files = sorted(folder.rglob("*"))
    names = [f"{file.relative_to(folder)}: {file.stat().st_size if file.is_file() else 'folder'}" for file in files]
    return blake2b(b"".join([repr(names).encode(), *(f.read_bytes() for f in files if f.is_file())])).hexdigest()


def reseal(path: Path, **changes: Any) -> None:
    """Change members of a JSON file, and seal it again, as somebody who knows how would."""
    value, _ = read_json(path)
    write_json(path, value | changes)


def kept_models(folder: Path) -> dict[str, str]:
    """The files of models that a finished run names, by name."""
    listed = read_json(folder / "run.json")[0]["models"]
    names = {entry["file"] for which in ("chosen", "last") for entry in listed[which].values()}
    return {name: (folder / name).read_bytes().hex() for name in sorted(names)}


def result(folder: Path) -> str:
    """Everything that a run came to, as text: figures, tables and models."""
    run = dc.load(folder)
    models = load_file(folder / "state.safetensors")
    rows = [
        leaf.read_bytes().hex() for leaf in sorted(folder.glob("clients/leaf*.bin"))
    ]  # who was never touched has zeros
    return json.dumps(
        {
            "rounds": run.rounds.drop("seconds").write_json(),
            "clients": run.clients.write_json(),
            "sizes": {part: sizes.tolist() for part, sizes in run.history.federation.sizes.items()},
            "names": run.history.federation.names,
            "config": {k: v for k, v in run.config.items() if k not in ("execution", "versions")},
            "models": {name: leaf.tolist() for name, leaf in models.items()},
            "rows": rows,
            "kept": kept_models(folder),
        }
    )
