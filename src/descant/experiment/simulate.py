"""`simulate`: a whole federation in one process."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import nullcontext
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
from descant.execution import Loop, Mode
from descant.execution.tuning import prepare, threads_inside
from descant.experiment import Federation, History, Run
from descant.experiment.identity import fingerprints
from descant.experiment.journal import Journal
from descant.methods import Method
from descant.task import Task
from descant.threads import using_threads
from descant.version import __version__


def simulate(
    task: Task,
    data: FederatedData,
    method: Method,
    *,
    rounds: int,
    cohort: int | float | None = None,
    seed: int = 0,
    out: str | Path | Journal | None = None,
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
    threads: int | None = None,
    store: Literal["memory", "disk"] = "memory",
    commit: int | None = None,
    overwrite: bool = False,
    label: str | None = None,
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
        out: a folder to leave the run in. Should it be interrupted, `resume` goes on with it from there.
        sampling: the cohort is drawn uniformly, or in proportion to the clients' "size".
        trainers: who trains in a round: the cohort, or everyone while only the cohort's messages are used.
        own_start: every client draws a model of its own to start from, instead of the module's parameters.
        stragglers: the share of clients that finish only a part, uniformly drawn, of their local work.
        drop_last: leave out the short last minibatch of an epoch.
        nonfinite: messages with a NaN or an infinity are dropped and counted, or kept.
        evaluate: evaluate every so many rounds, or an `Evaluation` that says more.
        aggregator: how the server combines messages; the mean by default.
        mode: "vmap" runs all clients as one program, "compile" a compiled one, and "loop" one client after the
            other; "auto" measures, and chooses. Modes agree up to rounding.
        chunk: how many clients are processed at once; by default what fits memory and cache. Results do not depend
            on it.
        device: where to compute, such as "cpu" or "cuda".
        threads: how many threads to compute with. By default as many as there are cores, or OMP_NUM_THREADS; on a
            busy machine, 1 is many times faster than more.
        store: where the clients' state lies: in memory, or on "disk", as files in `out`, for more clients than
            memory holds.
        commit: after how many rounds to commit to `out`, so that the run can be resumed from there. By default when
            10 seconds have passed (or 20 times what a commit takes); with store="disk" it is every round.
        overwrite: replace the run that already lies in `out`.
        label: the run's name in tables and charts; the method's by default. Runs of the same label are its seeds.
        progress: called with every record as it is made.
    """
    _check("threads", threads, threads is None or threads >= 1, "a positive number")
    _check("commit", commit, commit is None or commit >= 1, "a positive number of rounds")
    _check("store", store, store in ("memory", "disk"), "'memory' or 'disk'")
    _check("store", store, store == "memory" or out is not None, "'memory' unless there is a folder `out`")
    _check("commit", commit, store == "memory" or commit in (None, 1), "1 (or nothing) with store='disk'")
    _check("nonfinite", nonfinite, nonfinite in ("drop", "keep"), "'drop' or 'keep'")
    plan = Plan(
        rounds=_check("rounds", rounds, rounds >= 1, "a positive number"),
        cohort=cohort_size(cohort, len(data)),
        seed=seed,
        sampling=_check("sampling", sampling, sampling in ("uniform", "size"), "'uniform' or 'size'"),
        trainers=_check("trainers", trainers, trainers in ("cohort", "everyone"), "'cohort' or 'everyone'"),
        own_start=own_start,
        stragglers=_check("stragglers", stragglers, 0 <= stragglers <= 1, "a share from 0 to 1"),
        drop_last=drop_last,
        keep_nonfinite=nonfinite == "keep",
        chunk=_check("chunk", chunk, chunk is None or chunk >= 1, "a positive number"),
        evaluation=Evaluation(every=evaluate) if isinstance(evaluate, int) else evaluate,
        aggregator=aggregator or Mean(),
        codec=Native(),
    )
    journal = out if isinstance(out, Journal) or out is None else Journal.claim(out, overwrite)
    with using_threads(threads), journal or nullcontext():
        return _carry_out(task, data, method, plan, mode, device, store, commit, label, journal, progress)


def _carry_out(
    task: Task,
    data: FederatedData,
    method: Method,
    plan: Plan,
    mode: Mode,
    device: str,
    store: str,
    commit: int | None,
    label: str | None,
    journal: Journal | None,
    progress: Callable[[Record], None] | None,
) -> Run:
    """Run what was planned, from the beginning or from where the journal left it."""
    prints = fingerprints(task, data, method, plan.aggregator) if journal is not None else {}
    task = task if journal is None else journal.start(task)
    data = data.to(dtype=task.dtype, device=device)
    trainers = plan.cohort if plan.trainers == "cohort" else len(data)
    asked = min(plan.chunk, trainers) if plan.chunk else None
    execution, at_once, why = prepare(task, data, method, mode, rounds=plan.rounds, trainers=trainers, chunk=asked)
    config = _config(task, data, method, plan) | {
        "execution": {
            "mode": execution.mode,
            "why": why,
            "device": device,
            "threads": torch.get_num_threads(),
            "clients_at_once": at_once,
            "channels_last": getattr(execution, "channels_last", False),
        },
        "store": store,
        "commit": commit,
        "label": label or method.name,
    }
    if journal is not None:
        config = journal.begin(config, prints)
    if config["execution"]["channels_last"]:  # what was measured to be fastest when the run began
        execution = Loop(task, channels_last=True, workers=torch.get_num_threads())
    config["execution"]["fallbacks"] = execution.notes  # filled as the run goes on
    history = History(task.metric.name, task.metric.higher_is_better, Federation.of(data))
    folder = journal.clients if journal is not None and store == "disk" else None
    simulation = Simulation(execution, data, method, plan, at_once, folder)
    if journal is not None:
        journal.restore(simulation, history)
    with using_threads(threads_inside(execution)):
        for record in simulation.run() if history.collapse is None else ():
            history.add(record)
            if journal is not None:
                journal.add(record, simulation)
            if progress is not None:
                progress(record)
    run = Run(config, history, simulation)
    if journal is not None:
        run.save(journal.folder)
        journal.finish()
    return run


def _check(name: str, value: Any, allowed: bool, what: str) -> Any:
    if not allowed:
        raise SettingError(f"{name} = {value!r}: it must be {what}")
    return value


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
