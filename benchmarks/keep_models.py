"""What it costs to keep models:   python benchmarks/keep_models.py

The same run with keep_models="none" and "chosen", evaluated after every round; in memory without a folder, with a
folder that commits after every round, and with the clients' state on disk. Seconds of the processor, which a busy
machine does not change much, the least of a few runs. Every round but the last is better than all before (the worst
case, "improves") or worse (the usual case late in a run, "does not").
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

import descant as dc

ROUNDS, TIMES = 6, 2
SIZES = {"small": (100, 60, ()), "large": (300, 784, (100,))}  # clients, inputs, hidden layers


def task(data: dc.FederatedData, hidden: tuple[int, ...], improves: bool) -> dc.Task:
    """A task whose metric gets better, or worse, with every time that it is looked at."""
    looks = 0

    def metric(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal looks
        looks += 1
        return torch.full(targets.shape, float(looks if improves else -looks))

    torch.manual_seed(0)
    return dc.Task(dc.models.mlp(data, hidden), _loss, dc.Metric("looks", metric, higher_is_better=True))


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def seconds(data: dc.FederatedData, hidden: tuple[int, ...], improves: bool, **how: Any) -> float:
    """Of the processor, for one round and its evaluation."""
    local = dc.methods.Local(steps=1, batch=10)
    evaluation = dc.Evaluation(parts=("valid",), models=("personal",))
    began = process_time()
    dc.simulate(task(data, hidden, improves), data, local, rounds=ROUNDS, evaluate=evaluation, mode="vmap", **how)
    return (process_time() - began) / ROUNDS


def main() -> None:
    torch.set_num_threads(1)
    for size, (clients, inputs, hidden) in SIZES.items():
        data = dc.data.synthetic(clients=clients, samples=30, dim=inputs)
        d = dc.Task(dc.models.mlp(data, hidden)).dim
        print(f"{size}: {clients} clients, {d:,} parameters, {4e-6 * clients * d:,.1f} MB a round")
        for where in ("no folder", "folder", "disk"):
            for improves in (True, False):
                found = {}
                for keep in ("none", "chosen"):
                    times = []
                    for _ in range(TIMES):
                        with tempfile.TemporaryDirectory() as folder:
                            how: dict[str, Any] = {} if where == "no folder" else {"out": Path(folder), "commit": 1}
                            how |= {"store": "disk"} if where == "disk" else {}
                            times.append(seconds(data, hidden, improves, keep_models=keep, **how))
                    found[keep] = min(times)
                more = 1000 * (found["chosen"] - found["none"])
                said = "improves" if improves else "does not"
                print(f"  {where:10} {said:9} {1000 * found['none']:9.1f} ms a round, {more:+8.1f} ms with models")


if __name__ == "__main__":
    main()
