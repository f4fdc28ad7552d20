"""The plain loop over clients: in turn, or several clients side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.errors import TaskError
from descant.execution import Loop
from descant.task import Batch, Task
from tests import held


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
    return layers.append(nn.Linear(3 * 4 * 4, 3)).double()


def batch(clients: int, examples: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(clients, examples, 2, 6, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (clients, examples), generator=generator)
    mask = torch.arange(examples) < 2 + torch.arange(clients)[:, None] % (examples - 1)
    return Batch(inputs, targets, mask, torch.arange(clients))


@pytest.mark.parametrize("how", [{"workers": 3}, {"channels_last": True}, {"workers": 2, "channels_last": True}])
def test_workers_and_layout_change_no_result(how: dict[str, Any]) -> None:
    task, drawn = Task(network()), batch(7, 5)
    x = task.start() + 0.1 * torch.randn(7, task.dim, dtype=torch.float64)
    statistics = task.buffer_start().repeat(7, 1)
    active = torch.tensor([True, True, False, True, True, True, True])
    plain, other = (
        execution.grads(x, statistics, drawn, active, task.objective, ())
        for execution in (Loop(task), Loop(task, **how))
    )
    torch.testing.assert_close(other, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        Loop(task, **how).outputs(x, statistics, drawn.inputs),
        Loop(task).outputs(x, statistics, drawn.inputs),
        rtol=1e-12,
        atol=1e-12,
    )


def test_what_goes_wrong_in_a_worker_is_raised() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    task = Task(model)
    one = Batch(
        torch.randn(4, 1, 4, dtype=torch.float64),
        torch.zeros(4, 1, dtype=torch.int64),
        torch.ones(4, 1, dtype=torch.bool),
        torch.arange(4),
    )
    x, statistics = task.start().repeat(4, 1), task.buffer_start().repeat(4, 1)
    with pytest.raises(TaskError, match="single example"):
        Loop(task, workers=2).grads(x, statistics, one, one.mask[:, 0], task.objective, ())


def test_a_run_on_two_threads_is_the_run_on_one_and_leaves_the_threads_as_they_were() -> None:
    data = dc.data.synthetic(clients=5, samples=30)
    method, before = dc.methods.FedAvg(steps=3, batch=8), torch.get_num_threads()
    model = nn.Linear(60, 10).double()
    one, two = (dc.simulate(Task(model), data, method, rounds=2, mode="loop", threads=n) for n in (1, 2))
    assert [run.config["execution"]["threads"] for run in (one, two)] == [1, 2]
    assert torch.get_num_threads() == before
    torch.testing.assert_close(*(held.shared(run) for run in (one, two)), rtol=0, atol=1e-12)
