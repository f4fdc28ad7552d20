"""Runs that keep models, and what their tables say of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import descant as dc
from tests.experiment.small import DATA

ALL = dc.Evaluation(every=2, models=("personal", "shared", "selected"))
CLIENTS = (0, 5, 11)  # the first one, the last one and one between: what is true of them is of all
SOME: dict[str, Any] = {"rounds": 9, "cohort": 3, "evaluate": ALL}


def accuracy(model: nn.Module, client: int, data: dc.FederatedData = DATA) -> float:
    """By plain torch."""
    inputs, targets = data.test.client(client)
    return float((model(inputs).argmax(1) == targets).double().mean())


def shown(run: dc.Run, kind: str, round: str, client: int) -> float:
    """What the tables say."""
    at = run.summary()[f"{kind}.round@{'last' if round == 'last' else 'chosen_on_valid'}"]
    row = run.clients.filter(pl.col("round") == at, pl.col("model") == kind, pl.col("client") == client)
    return float(row["test_accuracy"].item())


class Counter(nn.Module):
    """A model whose number says how many rounds it was trained for."""

    def __init__(self) -> None:
        super().__init__()
        self.round = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :1] * 0 + self.round


def counted(table: list[float], higher: bool, every: int = 1, **how: Any) -> dc.Run:
    """A run in which every round moves the model by 1, and its metric is what a table says."""
    values = torch.tensor(table, dtype=torch.float64)

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        return values[outputs[:, 0].round().long().clamp(0, len(values) - 1)]

    counting = dc.Task(Counter(), lambda outputs, targets: -outputs[:, 0], dc.Metric("told", of, higher))
    part = (np.zeros((3, 1)), np.zeros((3, 1)))
    data = dc.FederatedData.from_arrays([{"train": part, "valid": part, "test": part}] * 2)
    method = dc.methods.FedAvg(lr=1.0, steps=1)
    return dc.simulate(counting, data, method, rounds=len(table) - 1, mode="vmap", evaluate=every, **how)
