"""Large federations: time and memory as the number of clients grows, data and state memory-mapped.

    python benchmarks/scale.py [--clients 1000 10000 100000] [--folder DIR]

Logistic regression (60 inputs, 10 classes), 50 examples a client, Ditto, a cohort of 100. Each size runs in a
process of its own. A round is measured from commit to commit; the memory is the peak of RssAnon, which pages of
mapped files are no part of, sampled every 2 ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter

import torch

import descant as dc
from descant.engine import Record, RoundRecord

ROUNDS, EVERY, COHORT, SAMPLES = 20, 10, 100, 50


class PeakMemory:
    """The peak of this process's anonymous memory while `with` it, in MiB."""

    def __enter__(self) -> PeakMemory:
        self.peak, self._stop = 0.0, Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.peak = max(self.peak, int(line.split()[1]) / 1024)


def measure(clients: int, folder: Path) -> dict[str, float]:
    """One run over so many clients: seconds and MiB."""
    times: list[tuple[Record, float]] = []
    with PeakMemory() as memory:
        began = perf_counter()
        data = dc.data.synthetic(clients=clients, samples=SAMPLES, seed=1, folder=folder / f"data-{clients}")
        made = perf_counter()
        run = dc.simulate(
            dc.Task(torch.nn.Linear(60, 10)),
            data,
            dc.methods.Ditto(steps=10, batch=10, solver=dc.methods.FedAvg(steps=10, batch=10)),
            rounds=ROUNDS,
            cohort=COHORT,
            evaluate=EVERY,
            mode="vmap",
            store="disk",
            out=folder / f"run-{clients}",
            overwrite=True,
            progress=lambda record: times.append((record, perf_counter())),
        )
        done = perf_counter()
    gaps = [(before, after, at - since) for (before, since), (after, at) in pairwise(times)]
    trained = [
        gap for before, after, gap in gaps if isinstance(before, RoundRecord) and isinstance(after, RoundRecord)
    ]
    evaluated = sum(gap for _, after, gap in gaps if not isinstance(after, RoundRecord) and after.round > 0)
    return {
        "clients": clients,
        "round": median(trained),
        "evaluation": evaluated / (ROUNDS // EVERY),
        "start": times[0][1] - made,
        "end": done - times[-1][1],
        "data": made - began,
        "peak_rss_anon": memory.peak,
        "accuracy": run.summary()["personal.test_accuracy.mean@last"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where data and runs lie; a temporary folder by default")
    parser.add_argument("--one", action="store_true", help="measure in this process, and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.clients[0], asked.folder)))
        return
    print(" clients  round, s  evaluation, s  start, s  end, s  peak RssAnon, MiB")
    with tempfile.TemporaryDirectory() as temporary:
        for clients in asked.clients:
            folder = asked.folder or Path(temporary)
            command = [sys.executable, __file__, "--one", "--clients", str(clients), "--folder", str(folder)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"{clients:8d} {found['round']:9.4f} {found['evaluation']:14.3f} {found['start']:9.3f} "
                f"{found['end']:7.2f} {found['peak_rss_anon']:18.0f}"
            )


if __name__ == "__main__":
    main()
