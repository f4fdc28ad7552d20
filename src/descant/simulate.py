"""`simulate`: a whole federation in one process."""

from __future__ import annotations

import platform
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from descant.aggregators import Aggregator, Mean
from descant.catalog import describe
from descant.codecs import Native
from descant.data import FederatedData
from descant.engine import Evaluation, Plan, Record, Simulation, cohort_size
from descant.engine.cohort import Sampling
from descant.errors import SettingError
from descant.methods import Method
from descant.runs import Federation, History, Run
from descant.runs.run import claim
from descant.task import Mode, Task, choose
from descant.version import __version__

_MEMORY = 2**27  # numbers that a chunk of clients may take
_PROBED = 3  # examples that a model is tried on


def simulate(
    task: Task,
    data: FederatedData,
    method: Method,
    *,
    rounds: int,
    cohort: int | float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    sampling: Sampling = "uniform",
    trainers: Literal["cohort", "everyone"] = "cohort",
    own_start: bool = False,
    stragglers: float = 0.0,
    drop_last: bool = False,
    nonfinite: Literal["drop", "keep"] = "drop",
    evaluate: int | Evaluation = 1,
    aggregator: Aggregator | None = None,
    mode: Mode = "auto",
    chunk: int | None = None,
    device: str = "cpu",
    overwrite: bool = False,
    progress: Callable[[Record], None] | None = None,
) -> Run:
    """Train `method` on the clients of `data` for a number of rounds.

    Args:
        task: what the clients learn.
        data: who holds which examples.
        method: how they learn together.
        rounds: the number of communication rounds.
        cohort: clients a round: a number, a fraction (0.1 is a tenth), or None for everyone.
        seed: all draws of the run follow from it.
        out: a folder to leave the run in.
        sampling: the cohort is drawn uniformly, or in proportion to the clients' "size".
        trainers: who trains in a round: the cohort, or everyone while only the cohort's messages are used.
        own_start: every client draws a model of its own to start from, instead of the module's parameters.
        stragglers: the share of clients that finish only a part, uniformly drawn, of their local work.
        drop_last: leave out the short last minibatch of an epoch.
        nonfinite: messages with a NaN or an infinity are dropped and counted, or kept.
        evaluate: evaluate every so many rounds, or an `Evaluation` that says more.
        aggregator: how the server combines messages; the mean by default.
        mode: "vmap" runs all clients as one program, "loop" one after the other; "auto" chooses.
        chunk: how many clients are processed at once; by default what fits memory. Results do not depend on it.
        device: where to compute, such as "cpu" or "cuda".
        overwrite: replace the run that already lies in `out`.
        progress: called with every record as it is made.
    """
    folder = claim(out, overwrite) if out is not None else None
    evaluation = Evaluation(every=evaluate) if isinstance(evaluate, int) else evaluate
    data = data.to(dtype=task.dtype, device=device)
    plan = Plan(
        rounds=_check("rounds", rounds, rounds >= 1, "a positive number"),
        cohort=cohort_size(cohort, len(data)),
        seed=seed,
        sampling=_check("sampling", sampling, sampling in ("uniform", "size"), "'uniform' or 'size'"),
        trainers=_check("trainers", trainers, trainers in ("cohort", "everyone"), "'cohort' or 'everyone'"),
        own_start=own_start,
        stragglers=_check("stragglers", stragglers, 0 <= stragglers <= 1, "a share from 0 to 1"),
        drop_last=drop_last,
        keep_nonfinite=_check("nonfinite", nonfinite, nonfinite in ("drop", "keep"), "'drop' or 'keep'")
        == "keep",
        chunk=_check("chunk", chunk or _chunk(task, data), chunk is None or chunk >= 1, "a positive number"),
        evaluation=evaluation,
        aggregator=aggregator or Mean(),
        codec=Native(),
    )
    inputs, targets = data.train.client(0)
    execution, why = choose(task, inputs[:_PROBED], targets[:_PROBED], mode)
    config = _config(task, data, method, plan) | {
        "execution": {
            "mode": execution.mode,
            "why": why,
            "device": device,
            "threads": torch.get_num_threads(),
        }
    }
    simulation = Simulation(execution, data, method, plan)
    history = History(task.metric.name, task.metric.higher_is_better, _federation(data))
    for record in simulation.run():
        history.add(record)
        if progress is not None:
            progress(record)
    run = Run(config, history, simulation)
    if folder is not None:
        run.save(folder)
    return run


def _check(name: str, value: Any, allowed: bool, what: str) -> Any:
    if not allowed:
        raise SettingError(f"{name} = {value!r}: it must be {what}")
    return value


def _chunk(task: Task, data: FederatedData) -> int:
    """How many clients fit: a few vectors of parameters each, and all their examples."""
    examples = int(data.train.sizes.max()) * prod(data.input_shape)
    return max(1, min(1024, _MEMORY // (8 * task.dim + 2 * examples)))


def _federation(data: FederatedData) -> Federation:
    sizes = {part: data.part(part).sizes.cpu().numpy() for part in ("train", "valid", "test")}
    labels = data.counts().cpu().numpy() if data.classes is not None else None
    return Federation(list(data.clients), sizes, labels)


def _config(task: Task, data: FederatedData, method: Method, plan: Plan) -> dict[str, Any]:
    """Everything that the run followed from."""
    evaluation = plan.evaluation
    return {
        "data": {
            "name": data.name,
            "clients": len(data),
            "classes": data.classes,
            "settings": dict(data.settings),
        },
        "task": task.describe(),
        "method": describe(method),
        "rounds": plan.rounds,
        "cohort": plan.cohort,
        "seed": plan.seed,
        "sampling": plan.sampling,
        "trainers": plan.trainers,
        "own_start": plan.own_start,
        "stragglers": plan.stragglers,
        "drop_last": plan.drop_last,
        "nonfinite": "keep" if plan.keep_nonfinite else "drop",
        "evaluation": {"every": evaluation.every, "parts": evaluation.parts, "models": evaluation.models},
        "aggregator": describe(plan.aggregator),
        "codec": describe(plan.codec),
        "chunk": plan.chunk,
        "versions": {
            "descant": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
