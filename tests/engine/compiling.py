"""What the tests of compiled programs train: a linear model, on ragged clients with three classes."""

from __future__ import annotations

import torch

import descant as dc


def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Linear(5, 3).double())


def federation(*sizes: int) -> dc.FederatedData:
    generator = torch.Generator().manual_seed(3)
    clients = [torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in sizes]
    return dc.FederatedData.from_arrays([(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()) for x in clients])
