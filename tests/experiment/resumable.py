"""A run of Ditto that can be interrupted, for the tests of resume."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.experiment import unfinished
from tests.interrupted import interrupt

DATA = {"name": "synthetic", "clients": 20, "samples": 20, "dim": 4, "classes": 3}
SETTINGS: dict[str, Any] = {
    "data": DATA,
    "method": {"name": "ditto", "steps": 2, "batch": 4, "solver": {"name": "fedavg", "steps": 2, "batch": 4}},
    "rounds": 8,
    "cohort": 2,
    "evaluate": {"every": 2},
    "mode": "vmap",
}


@cache
def federation(**changes: Any) -> dc.FederatedData:
    return dc.data.synthetic(**{name: value for name, value in DATA.items() if name != "name"} | changes)


@cache
def new_task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)))


def begin(data: dc.FederatedData, out: Path, stop: int | None = 5, **settings: Any) -> dc.Run | None:
    """A run that is interrupted after a round, or not at all."""
    ditto = dc.methods.Ditto(lam=0.3, steps=2, solver=dc.methods.FedAvg(steps=2, batch=5))
    how: dict[str, Any] = {"method": ditto, "rounds": 8, "cohort": 2, "evaluate": 2, "out": out, "mode": "vmap"}
    if stop is None:
        return dc.simulate(new_task(), data, **how | settings)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(new_task(), data, **how | settings, progress=interrupt(stop))
    assert unfinished(out)
    return None
