"""A small federation that is killed again and again (test_kill.py).

python killable.py FOLDER STORE KILLS SEED MODE WHAT

A child is forked for every attempt, so that torch is imported once. It kills itself at a chosen call of the file
system, or is killed after a random time; the next attempt resumes what it left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

import descant as dc
from descant.experiment import finished, unfinished
from descant.state.leaves import Leaves


class Moment(NamedTuple):
    """When an attempt dies: after a time, or at the n-th call of `owner.name`, before it or after it."""

    seconds: float | None = None
    owner: Any = None
    name: str = ""
    number: int = 0
    after: bool = False


class How(NamedTuple):
    """What is run, and how."""

    store: str
    mode: str
    what: str


def settings_of(what: str) -> dict[str, Any]:
    """A method, and who acts on its mail."""
    if what == "ditto":
        solver = dc.methods.FedAvg(steps=2, batch=4)
        return {"method": dc.methods.Ditto(lam=0.5, steps=3, batch=4, solver=solver)}
    return {  # every kind of state: of clients, of the server, of each client at the server, of codecs, of parts
        "method": dc.methods.FLAME(steps=3, batch=4),
        "codec": {"name": "top-k", "share": 0.2},
        "aggregator": "centered-clipping",
        "attacks": ["random-labels", "sign-flip"],
        "malicious": 5,
        "lost": 0.3,
    }


def run(folder: Path, how: How) -> None:
    """Begin the run in a folder, or go on with it."""
    generator = torch.Generator().manual_seed(1)
    clients = []
    for k in range(40):
        inputs = torch.randn(10 + k % 7, 4, generator=generator)
        clients.append((inputs, torch.randint(3, (len(inputs),), generator=generator)))
    data = dc.FederatedData.from_arrays(clients, classes=3)
    torch.manual_seed(0)
    task = dc.Task(torch.nn.Linear(4, 3))
    if unfinished(folder):
        dc.resume(folder, task, data)
    elif not finished(folder):
        keep: dict[str, Any] = {"store": "disk"} if how.store == "disk" else {"store": "memory", "commit": 3}
        more = {"cohort": 5, "seed": 3, "stragglers": 0.3, "evaluate": 2, "health": 3, "mode": how.mode}
        dc.simulate(task, data, rounds=14, out=folder, **settings_of(how.what), **more, **keep)


def attempt(folder: Path, how: How, moment: Moment) -> bool:
    """One attempt in a process of its own; whether it was killed."""
    with warnings.catch_warnings():  # Python 3.12 warns of a fork where there are threads; the child uses none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        if moment.owner is not None:
            _arm(moment)
        run(folder, how)
        os._exit(0)
    if moment.seconds is not None:
        time.sleep(moment.seconds)
        os.kill(child, signal.SIGKILL)  # a child that has ended waits for its parent: the number is still its own
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"an attempt on {folder} failed")
    return os.WIFSIGNALED(status)


def _arm(moment: Moment) -> None:
    original, calls = getattr(moment.owner, moment.name), 0

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == moment.number and not moment.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments)
        if calls == moment.number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(moment.owner, moment.name, call)


def moments(seed: int, takes: float, store: str) -> Iterator[Moment]:
    """Random times, and random places in the middle of commits."""
    draw = random.Random(seed)
    while True:
        yield Moment(seconds=draw.uniform(0, takes))
        yield Moment(None, os, "replace", draw.randint(1, 12), draw.random() < 0.5)  # around the rename
        yield Moment(seconds=draw.uniform(0, takes))
        if store == "disk":  # between the commit and its rows, or in their middle
            yield Moment(None, Leaves, "write", draw.randint(1, 12), draw.random() < 0.5)
        else:
            yield Moment(None, os, "fsync", draw.randint(1, 24), draw.random() < 0.5)


def main() -> None:
    folder, store, kills, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    how = How(store, *sys.argv[5:])
    os.environ["DESCANT_CACHE"] = str(folder / "cache")  # "auto" measures once, and the others do what it found
    torch.set_num_threads(1)  # no threads that a fork would lose
    began = time.perf_counter()
    attempt(folder / "unbroken", how, Moment())
    when = moments(seed, time.perf_counter() - began, store)
    killed, runs, longest = 0, 0, 0
    while killed < kills:
        here, times = folder / f"run{runs}", 0
        runs += 1
        while not finished(here):
            moment = next(when) if killed < kills else Moment()
            if attempt(here, how, moment):
                killed, times = killed + 1, times + 1
        longest = max(longest, times)
    print(json.dumps({"killed": killed, "runs": runs, "most_kills_of_a_run": longest}))


if __name__ == "__main__":
    main()
