"""Aggregators: seconds and memory on the messages of many clients, beside byzfl's in the same run.

    python benchmarks/aggregators.py [--clients 1000] [--parameters 100000] [--only krum nnm] [--turns 3]

Every call is a process of its own with one thread: it draws the messages in float32, warms up on a few, and calls
the aggregator once. The libraries take turns. Memory is what the peak of the process grows by during the call,
beyond the messages themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from peers import byzfl_env

from descant import aggregators as dc
from descant.context import Context
from descant.mail import Mail
from descant.task import Layout

_MEMORY = 14 * 2**30  # bytes that a process may ask for: what needs more is said, and ends nobody else
_MIB = 2**20


class Case(NamedTuple):
    """The same work in both libraries; byzfl's is None where it has nothing like it."""

    ours: Callable[[int], dc.Aggregator]  # from the number of assumed attackers
    theirs: Callable[[Any, Any, int], Callable[[Any], Any]] | None = None


def _then_mean(before: Callable[[Any, Any, int], Any]) -> Callable[[Any, Any, int], Callable[[Any], Any]]:
    """A preaggregator of byzfl's, and the mean, as ours do by themselves."""
    return lambda A, P, f: lambda x: A.Average()(before(A, P, f)(x))


CASES: dict[str, Case] = {
    "mean": Case(lambda f: dc.Mean(), lambda A, P, f: A.Average()),
    "coordinate-median": Case(lambda f: dc.CoordinateMedian(), lambda A, P, f: A.Median()),
    "trimmed-mean": Case(lambda f: dc.TrimmedMean(f=f), lambda A, P, f: A.TrMean(f=f)),
    "geometric-median": Case(lambda f: dc.GeometricMedian()),
    "geometric-median, 3 steps": Case(
        lambda f: dc.GeometricMedian(weiszfeld=3, delta=0.1, start="zero"),
        lambda A, P, f: A.GeometricMedian(nu=0.1, T=3),
    ),
    "krum": Case(lambda f: dc.Krum(f=f), lambda A, P, f: A.Krum(f=f)),
    "multi-krum": Case(lambda f: dc.MultiKrum(f=f), lambda A, P, f: A.MultiKrum(f=f)),
    "bulyan": Case(lambda f: dc.Bulyan(f=f)),
    "norm-clipping": Case(lambda f: dc.NormClipping()),
    "norm-clipping, fixed": Case(
        lambda f: dc.NormClipping(norm=1.0), _then_mean(lambda A, P, f: P.Clipping(c=1.0))
    ),
    "centered-clipping": Case(
        lambda f: dc.CenteredClipping(tau=1.0), lambda A, P, f: A.CenteredClipping(L=1, tau=1.0)
    ),
    "adaptive-clipping": Case(lambda f: dc.AdaptiveClipping(f=f), _then_mean(lambda A, P, f: P.ARC(f=f))),
    "k-norm": Case(lambda f: dc.KNorm(f=f)),
    "k-loss": Case(lambda f: dc.KLoss(k=f)),
    "nnm": Case(lambda f: dc.NearestNeighborMixing(f=f), _then_mean(lambda A, P, f: P.NNM(f=f))),
    "bucketing": Case(lambda f: dc.Bucketing(size=2), _then_mean(lambda A, P, f: P.Bucketing(s=2))),
}


class Measured(NamedTuple):
    """A call: how long it took, and by how much the process's peak memory grew."""

    seconds: float
    mib: float


def messages(clients: int, parameters: int) -> torch.Tensor:
    """What clients send, drawn in its place: models that are alike, and a fifth of attackers."""
    x = torch.empty(clients, parameters).normal_(generator=torch.Generator().manual_seed(1))
    x[: clients // 5] *= 10
    return x


def call(library: str, name: str, clients: int) -> Callable[[torch.Tensor], Any]:
    """What is timed: an aggregator of `library` for a fifth of attackers."""
    case, f = CASES[name], clients // 5
    if library == "byzfl":
        assert case.theirs is not None
        return case.theirs(*byzfl_env.load(), f)
    aggregator = case.ours(f)
    ctx = Context(1, 0, clients, Layout((), ()), torch.zeros(1)).of_server()

    def combine(x: torch.Tensor) -> Any:
        mail = Mail.of({"delta": x}, torch.arange(len(x)), ctx)
        facts = {"loss": torch.arange(len(x), dtype=torch.float64)} if aggregator.reads else {}
        return aggregator.combine(
            ctx, {}, replace(mail, references={"delta": torch.zeros_like(x[:1])}, facts=facts)
        )

    return combine


def measure(library: str, name: str, clients: int, parameters: int) -> Measured:
    """One call in this process."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    call(library, name, 10)(messages(10, 20))
    x, combine = messages(clients, parameters), call(library, name, clients)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = perf_counter()
    combine(x)
    seconds = perf_counter() - began
    return Measured(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / _MIB)


def apart(library: str, name: str, clients: int, parameters: int) -> Measured | str:
    """One call in a process of its own, or in a few words why there is none."""
    command = [sys.executable, __file__, "--one", library, name]
    command += ["--clients", str(clients), "--parameters", str(parameters)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return Measured(*json.loads(done.stdout))
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    memory = "allocate memory" in said or "MemoryError" in said
    return "no memory" if memory else said[:60]


def contest(name: str, clients: int, parameters: int, turns: int, peers: list[str]) -> dict[str, Measured | str]:
    """The median of some turns of each library, A B A B."""
    there = ["descant", *(peers if CASES[name].theirs is not None else [])]
    found: dict[str, list[Measured]] = {library: [] for library in there}
    failed: dict[str, Measured | str] = {}
    for _ in range(turns):
        for library in there:
            if library in failed:
                continue
            one = apart(library, name, clients, parameters)
            if isinstance(one, str):
                failed[library] = one
            else:
                found[library].append(one)
    middle = {
        n: Measured(*(median(column) for column in zip(*calls, strict=True))) for n, calls in found.items() if calls
    }
    return {**middle, **failed}


def row(name: str, found: dict[str, Measured | str], plain: float | None) -> str:
    """A line of the table."""
    ours, theirs = found["descant"], found.get("byzfl", "–")
    line = f"{name:26s}"
    for one in (ours, theirs):
        line += f"{one.seconds:9.2f} {one.mib:8.0f}" if isinstance(one, Measured) else f"{one:>18s}"
    both = isinstance(ours, Measured) and isinstance(theirs, Measured)
    line += f"{ours.seconds / theirs.seconds:9.2f}" if both else f"{'–':>9s}"  # type: ignore[union-attr]
    known = plain and isinstance(ours, Measured)
    return line + (f"{ours.seconds / plain:9.1f}" if known else f"{'–':>9s}")  # type: ignore[union-attr, operator]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--parameters", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-byzfl", action="store_true", help="time descant alone")
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "NAME"), help="call in this process, and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(*asked.one, asked.clients, asked.parameters)))
        return
    peers = [] if asked.no_byzfl else ["byzfl"]
    try:
        if peers:
            byzfl_env.install()
    except byzfl_env.UnavailableError as error:
        print(f"byzfl: {error}")
        peers = []
    print(f"{asked.clients:,} clients x {asked.parameters:,} parameters, float32, one thread")
    print(f"{'':26s}{'descant':>18s}{'byzfl':>18s}{'ratio':>9s}{'x mean':>9s}")
    print(f"{'':26s}{'s':>9s} {'MiB':>8s}{'s':>9s} {'MiB':>8s}")
    plain: float | None = None
    for name in asked.only:
        found = contest(name, asked.clients, asked.parameters, asked.turns, peers)
        if name == "mean" and isinstance(found["descant"], Measured):
            plain = found["descant"].seconds
        print(row(name, found, plain), flush=True)


if __name__ == "__main__":
    main()
