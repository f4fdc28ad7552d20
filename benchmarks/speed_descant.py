"""descant as a contender: FedAvg on a shape, or the round of lp-proj, in one of the execution modes."""

from __future__ import annotations

import argparse
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from speed_shapes import CASES, SHAPES, Shape
from speed_turns import Job, Turns
from torch import Tensor

import descant as dc
from descant.data import Part
from descant.engine import Collapse, RoundRecord

_LONG = 10**6  # rounds: a run that is worth compiling; it ends when nobody asks for more


def federation(inputs: Tensor, targets: Tensor, shape: Shape) -> dc.FederatedData:
    """Train parts only: nothing is evaluated while the clock runs."""
    train = Part(inputs, targets, torch.arange(shape.clients + 1) * shape.samples)
    none = Part(inputs[:0], targets[:0], torch.zeros(shape.clients + 1, dtype=torch.int64))
    return dc.FederatedData(train, none, none, classes=shape.classes, name=shape.key)


def fedavg(shape: Shape) -> dc.methods.FedAvg:
    return dc.methods.FedAvg(lr=shape.lr, epochs=shape.epochs, batch=shape.batch)


def arguments_of(case: str, folder: Path) -> dict[str, Any]:
    """What `simulate` is called with."""
    if case in SHAPES:
        job = Job(SHAPES[case], folder)
        return {
            "task": dc.Task(job.model()),
            "data": federation(*job.data(), job.shape),
            "method": fedavg(job.shape),
            "cohort": job.shape.cohort,
            "evaluate": dc.Evaluation(every=_LONG, parts=("test",)),
        }
    torch.manual_seed(0)
    return {  # the settings of the authors' code, as in examples/lp-proj-synthetic.yaml
        "task": dc.Task(torch.nn.Linear(60, 10)),
        "data": dc.data.synthetic(alpha=0.0, beta=0.0, clients=100, samples=202, seed=0),
        "method": dc.methods.LpProj(p=1, dim=21, lam=1.0, eta=0.05, lr=0.1, steps=20, batch=64, clip=60),
        "cohort": 0.1,
        "trainers": "everyone",
        "own_start": True,
        "evaluate": 1,
    }


def tell_choice(about: dict[str, Any]) -> None:
    """Write down how the run is executed when that is decided: a run tells it only at its end."""
    module: Any = import_module("descant.experiment.simulate")
    prepare = module.prepare

    @wraps(prepare)
    def told(*args: Any, **settings: Any) -> Any:
        prepared = prepare(*args, **settings)
        execution = prepared.execution
        about.update(mode=execution.mode, why=prepared.why, fallbacks=execution.notes)
        return prepared

    module.prepare = told


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("mode")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    turns = Turns(descant=dc.__version__)
    tell_choice(turns.about)
    settings = arguments_of(arguments.case, arguments.folder)

    def progress(record: object) -> None:
        if isinstance(record, RoundRecord):
            turns.trained()
        elif isinstance(record, Collapse):
            raise RuntimeError(f"collapsed in round {record.round}: {record.why}")

    turns.begin()
    dc.simulate(**settings, rounds=_LONG, mode=arguments.mode, progress=progress)


if __name__ == "__main__":
    main()
