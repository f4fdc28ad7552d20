"""Loading and partitioning a real data set: seconds, and memory beside the size of the data.

    python benchmarks/data.py [NAME] [--clients 100] [--labels 2]

NAME is mnist (the default), fashion-mnist or cifar10; its files must be there (`descant data fetch NAME`). 'The
data' is what a run then holds: all pictures of the official training and test parts as float32, and their labels as
int64. Time and memory are measured in a process of its own, from before the files are opened to when every client
has its parts, imports not counted; the memory is how much RssAnon rises at its peak, sampled every 2 ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep

from scale import PeakMemory

from descant.data.partitions import Labels
from descant.datasets import DATASETS


def measure(name: str, clients: int, labels: int) -> dict[str, float]:
    """One load: seconds and MiB."""
    with PeakMemory() as before:
        sleep(0.05)
    with PeakMemory() as memory:
        began = perf_counter()
        data = DATASETS[name](partition=Labels(clients=clients, labels=labels))
        seconds = perf_counter() - began
    parts = (data.train, data.valid, data.test)
    held = sum(x.numel() * x.element_size() for part in parts for x in (part.inputs, part.targets))
    return {"seconds": seconds, "data": held / 2**20, "peak": memory.peak - before.peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="?", default="mnist", choices=["mnist", "fashion-mnist", "cifar10"])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--labels", type=int, default=2)
    parser.add_argument("--one", action="store_true", help="measure in this process, and print JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.name, asked.clients, asked.labels)))
        return
    command = [sys.executable, str(Path(__file__)), asked.name, "--one"]
    command += ["--clients", str(asked.clients), "--labels", str(asked.labels)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{asked.name} to {asked.clients} clients: {found['seconds']:.2f} s; data {found['data']:.0f} MiB, "
        f"peak {found['peak']:.0f} MiB = {found['peak'] / found['data']:.2f} times the data"
    )


if __name__ == "__main__":
    main()
