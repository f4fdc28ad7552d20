"""What the tests of backdoors share: stamped examples, and pictures that a trigger has room on."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from descant import FederatedData, Run, Task
from descant.context import Context
from tests.attacks.oracle import SEED, Vector

WHO = torch.tensor([0, 4])
HOW: dict[str, Any] = {"rounds": 2, "seed": SEED, "evaluate": 2, "mode": "vmap", "malicious": (0, 4)}


def context(task: Task, round: int = 0) -> Context:
    return Context(round, SEED, 5, task.layout, task.start())


def stamped(x: Vector, places: list[int], trigger: Vector | float) -> Vector:
    """One example with the trigger on it."""
    flat = x.copy().reshape(-1)
    flat[places] = trigger
    return flat.reshape(x.shape)


def pictures(clients: int = 6, n: int = 60) -> FederatedData:
    """Pictures of 4 x 4 pixels whose class is the brightest quarter: easy to learn, with room for a trigger."""
    made = []
    for k in range(clients):
        g = torch.Generator().manual_seed(k)
        x, y = torch.rand(n, 1, 4, 4, generator=g), torch.randint(4, (n,), generator=g)
        rows, columns = (y // 2) * 2, (y % 2) * 2
        for i in range(n):
            x[i, 0, rows[i] : rows[i] + 2, columns[i] : columns[i] + 2] += 0.6
        made.append({"train": (x[:40], y[:40]), "test": (x[40:], y[40:])})
    return FederatedData.from_arrays(made, classes=4)


@cache
def net() -> Task:
    torch.manual_seed(2)
    return Task(nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)))


def last_success(run: Run, model: str = "personal") -> float:
    return float(run.summary()[f"{model}.test_attack_success.mean@last"])
