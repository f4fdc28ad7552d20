"""`simulate`: a whole federation in one process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from descant.aggregators import Aggregator
from descant.attacks import Attack
from descant.catalog import Spec, describe
from descant.codecs import Codec
from descant.data import FederatedData
from descant.engine import Evaluation, Health, Plan, Record, Simulation
from descant.engine.asked import leaves_named
from descant.errors import DamagedError, SettingError, in_the_run
from descant.execution import Execution, Loop
from descant.execution.convolutions import computed
from descant.execution.device import computing, resolve
from descant.execution.tuning import prepare, threads_inside
from descant.experiment import Run
from descant.experiment.allowed import refusal
from descant.experiment.callback import Callback
from descant.experiment.declaration import Call
from descant.experiment.identity import fingerprints
from descant.experiment.journal import Journal
from descant.experiment.keeping import Keeper
from descant.experiment.listeners import Listeners
from descant.experiment.models import Models
from descant.experiment.modules import example_of
from descant.experiment.notes import keep_notes, kept_notes
from descant.experiment.progress import watched
from descant.experiment.ready import Ready, history_of, ready
from descant.methods import Method
from descant.task import Task
from descant.threads import using_threads
from descant.version import __version__


def simulate(
    task: Task | nn.Module,
    data: FederatedData,
    method: Method | Spec,
    *,
    rounds: int,
    cohort: int | float | None = None,
    seed: int = 0,
    sampling: Literal["uniform", "size"] = "uniform",
    trainers: Literal["cohort", "everyone"] = "cohort",
    own_start: bool = False,
    stragglers: float = 0.0,
    drop_last: bool = False,
    nonfinite: Literal["drop", "keep"] = "drop",
    evaluate: int | Evaluation | Mapping[str, Any] = 1,
    health: int | Sequence[int] | Health | Mapping[str, Any] | None = None,
    aggregator: Aggregator | Spec | Sequence[Aggregator | Spec] = "mean",
    codec: Codec | Spec = "native",
    downlink: Codec | Spec = "native",
    attacks: Attack | Spec | Sequence[Attack | Spec] = (),
    malicious: int | float | Sequence[int] | None = None,
    newcomers: int | float | Sequence[int | str] | None = None,
    newcomer_rounds: int = 1,
    lost: float = 0.0,
    secret: int | None = None,
    precision: Literal["full", "tf32", "bf16"] = "full",
    deterministic: bool = True,
    mode: Literal["auto", "compile", "vmap", "loop"] = "auto",
    chunk: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    store: Literal["memory", "disk"] = "memory",
    commit: int | None = None,
    keep_models: Literal["chosen", "last", "none"] = "chosen",
    label: str | None = None,
    out: str | Path | Journal | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[Record], None] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
) -> Run:
    """Train `method` on the clients of `data` for a number of rounds.

    Args:
        task: what the clients learn; a module stands for `Task(module)`.
        data: who holds which examples.
        method: how they learn together, by object, name or spec.
        rounds: the number of communication rounds.
        cohort: clients a round: a number, a fraction (0.1 is a tenth), or None for everyone.
        seed: all draws of the run follow from it.
        sampling: the cohort is drawn uniformly, or in proportion to the clients' "size".
        trainers: who trains in a round: the cohort, or everyone while only the cohort's messages are used.
        own_start: every client draws a model of its own to start from, instead of the module's parameters.
        stragglers: the share of clients that finish only a part, uniformly drawn, of their local work.
        drop_last: leave out the short last minibatch of an epoch.
        nonfinite: messages with a NaN or an infinity are dropped and counted, or kept.
        evaluate: evaluate every so many rounds, or an `Evaluation` that says more.
        health: look at what the aggregation does to the clients' models (their jumps, and their losses on the way
            to the aggregate): every so many rounds, in a list of rounds, or a `Health` that says more.
        aggregator: how the server combines messages, by object, name or spec; several in a row as a list.
        codec: how messages become bytes on their way up, by object, name or spec.
        downlink: how broadcasts become bytes on their way down: a codec of plain numbers, or one of updates, by
            which the server says how its broadcast moved.
        attacks: what malicious clients do: one attack or several, by object, name or spec, or a paper's by the name
            of a preset, as in lp-proj/sign-flip.
        malicious: which clients attack: how many or a share of all, drawn by the seed, or a list of their numbers.
            They are the same for every method. With `attacks` it has to be given; 0 is nobody.
        newcomers: clients that never take part in training, and are evaluated as ones who come later: how many or a
            share of all, drawn by the seed, or a list of their numbers or names. Their figures stand apart.
        newcomer_rounds: how many rounds of work on its own training data a newcomer does before it is evaluated.
        lost: the share of messages that are lost on their way up, after the work was done.
        secret: what the parties draw in private (noise, masks) follows from it; by default it is drawn from the
            system, and follows from nothing that others know.
        precision: how exactly products are computed: "full", as the numbers are stored; on a GPU "tf32", with 10
            bits after the point; "bf16", where the model computes in bfloat16, its parameters and losses as they
            are stored.
        deterministic: on a GPU, add up in the same order every time, as far as torch can, so that the same seed
            gives the same bits, after an interruption too. Otherwise faster kernels may be taken, of convolutions
            above all, and runs differ in the last digits.
        mode: "vmap" runs all clients as one program, "compile" a compiled one, and "loop" one client after the
            other; "auto" measures, and chooses. Modes agree up to rounding.
        chunk: how many clients are processed at once; by default what fits memory and cache. Results do not depend
            on it.
        device: where to compute, such as "cpu" or "cuda"; "auto" is a GPU where there is one.
        threads: how many threads to compute with. By default as many as there are cores, or OMP_NUM_THREADS; on a
            busy machine, 1 is many times faster than more.
        store: where the clients' state lies: in memory, or on "disk", as files in the run's folder, for more
            clients than memory holds.
        commit: after how many rounds to commit to the run's folder, so that the run can be resumed from there. By
            default when 10 seconds have passed (or 20 times what a commit takes); with store="disk" it is every
            round.
        keep_models: which models are kept, for `Run.personal` and its like: those of the round "chosen" on
            validation data and of the last one, those of the "last" one, or "none".
        label: the run's name in tables and charts; the method's by default. Runs of the same label are its seeds.
        out: a folder to leave the run in. Should it be interrupted, `resume` goes on with it from there.
        overwrite: replace the run that already lies in `out`.
        progress: True shows a bar, in a terminal and in a notebook, and a line now and then elsewhere. A function
            is called with every record as it is made.
        callbacks: what looks on while the run goes on, and may stop it: objects of `descant.callbacks`, or of your
            own.
    """
    given = dict(locals())  # the arguments, as they are declared in descant.experiment.declaration
    for name in ("task", "data", "method"):
        del given[name]
    call = Call.of(given)
    asked = ready(task, data, method, call)
    if call.store == "disk" and call.out is None:
        raise refusal("store", call.store, "'memory' unless there is a folder `out`")
    out = call.out
    journal = out if isinstance(out, Journal) or out is None else Journal.claim(out, call.overwrite)
    title = call.label or asked.method.name
    shown = watched(call.progress, title, call.seed, call.rounds)
    call = replace(call, device=resolve(call.device))
    exactly = computing(call.device, call.precision, call.deterministic)
    with leaves_named(), using_threads(call.threads), exactly, journal or nullcontext(), shown as progress:
        try:
            return _carry_out(asked, replace(call, progress=progress), journal)
        except (SettingError, DamagedError):  # which name what is to be mended
            raise
        except Exception as error:
            in_the_run(error, f"'{title}' (seed {call.seed})")
            raise


def _carry_out(asked: Ready, call: Call, journal: Journal | None) -> Run:
    """Run what was asked for, from the beginning or from where the journal left it."""
    task, given, method, parties, plan = asked
    acting = {name: getattr(plan, name) for name in ("aggregator", "codec", "downlink", "attacks")}
    prints = fingerprints(task, given, method, **acting) if journal is not None else {}
    task = task if journal is None else journal.start(task)
    task = task.in_half() if call.precision == "bf16" else task
    data = parties.data.to(dtype=task.dtype, device=call.device)
    newcomers = parties.newcomers and parties.newcomers.to(dtype=task.dtype, device=call.device)
    trainers = plan.cohort if plan.trainers == "cohort" else len(data)
    chunk = min(plan.chunk, trainers) if plan.chunk else None
    if journal is not None and journal.started is not None:  # on a GPU it was measured
        chunk = journal.before["execution"]["clients_at_once"]
    execution, at_once, why = prepare(
        task, data, method, call.mode, rounds=plan.rounds, trainers=trainers, chunk=chunk
    )
    carried_out = {
        "mode": execution.mode,
        "why": why,
        "device": call.device,
        "threads": torch.get_num_threads(),
        "clients_at_once": at_once,
        "channels_last": getattr(execution, "channels_last", False),
        "convolutions": execution.convolutions,
        "fallbacks": list(execution.notes),
    }
    config = _config(task, given, method, call, plan, carried_out, prints)
    if journal is not None:
        config = journal.begin(config, prints)
        plan = plan if plan.secret is not None else replace(plan, secret=journal.secret)
    execution = _as_begun(execution, config["execution"], journal)
    if call.precision == "tf32" and not call.device.startswith("cuda"):
        execution.note("precision tf32 is a GPU's: products were computed in full")
    history, order = history_of(asked), parties.order
    folder = journal.clients if journal is not None and call.store == "disk" else None
    simulation = Simulation(execution, data, method, plan, at_once, folder, newcomers, order if newcomers else None)
    at = journal.folder if journal is not None else None
    keeper = Keeper(call.keep_models, simulation, history, at, spools=call.store == "disk")
    before = journal.restore(simulation, history, keeper) if journal is not None else []
    listeners = Listeners(call.callbacks, history, at)
    with listeners, using_threads(threads_inside(execution)):
        listeners.start(config, before, simulation)
        for record in simulation.run() if history.collapse is None else ():
            history.add(record)
            keeper.add(record)
            if journal is not None:
                keep_notes(journal.folder, execution.notes)
                journal.add(record, simulation)
            if callable(call.progress):
                call.progress(record)
            listeners.take(record, simulation)
    keeper.finish()
    execution.release()  # who keeps many runs needs the memory for others
    run = Run(config, history, simulation, Models.of_simulation(simulation, history, config, keeper.kept))
    if journal is not None:
        run.save(journal.folder)
        keeper.settle()
        journal.finish()
    listeners.end(run)
    return run


def _as_begun(execution: Execution, begun: dict[str, Any], journal: Journal | None) -> Execution:
    """The execution that the run was begun with, and with all that was noted on the way since."""
    noted = [*begun["fallbacks"], *(kept_notes(journal.folder) if journal is not None else []), *execution.notes]
    before = "unfolded" if begun.get("unfolded") else "grouped"  # what older runs say
    execution.task = computed(execution.task, begun.get("convolutions", before))
    if begun["channels_last"]:  # what was measured to be fastest when the run began
        execution = Loop(execution.task, channels_last=True, workers=torch.get_num_threads())
    execution.notes = begun["fallbacks"] = list(dict.fromkeys(noted))  # one list, filled as the run goes on
    return execution


def _config(
    task: Task,
    data: FederatedData,
    method: Method,
    call: Call,
    plan: Plan,
    carried_out: dict[str, Any],
    prints: dict[str, str],
) -> dict[str, Any]:
    """Everything that the run followed from, and how it was carried out."""
    about = {
        "name": data.name,
        "clients": len(data),
        "classes": data.classes,
        "example": example_of(data),
        "settings": dict(data.settings),
    }
    if data.class_names:
        about["class_names"] = list(data.class_names)
    if data.notes:
        about["notes"] = list(data.notes)
    if "data" in prints:
        about["fingerprint"] = prints["data"]
    how = {name: value for name, value in call.plain("how").items() if name not in carried_out}
    return {
        "data": about,
        "task": task.describe(),
        "method": describe(method),
        **({"revision": method.revision} if method.revision > 1 else {}),
        **call.plain("result"),
        "cohort": plan.cohort,
        **how,
        "label": call.label or method.name,
        "versions": {
            "descant": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "execution": carried_out,
    }
