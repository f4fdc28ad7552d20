"""Convolutions as matrix products give what convolutions give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from descant import Task
from descant.execution import Loop, Vmap
from descant.execution.convolutions import can_unfold, unfolded
from descant.task import Batch

LAYERS = {
    "plain": nn.Conv2d(3, 4, 3),
    "strides and padding": nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2)),
    "dilated, no bias": nn.Conv2d(3, 4, 3, dilation=2, bias=False),
}


def task_of(layer: nn.Module) -> Task:
    torch.manual_seed(0)
    rest = nn.Sequential(nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.LazyLinear(5))
    model = nn.Sequential(layer, rest).double()
    model(torch.zeros(1, 3, 9, 8, dtype=torch.float64))  # LazyLinear finds out how many inputs it has
    return Task(model)


@pytest.mark.parametrize("name", LAYERS)
def test_unfolded_convolutions_are_convolutions(name: str) -> None:
    task = task_of(LAYERS[name])
    assert any(can_unfold(module) for module in task.model.modules())
    other = unfolded(task)
    assert [type(m).__name__ for m in other._training.modules()].count("_Unfolded") == 1
    generator = torch.Generator().manual_seed(1)
    x = task.start() + 0.1 * torch.randn(4, task.dim, generator=generator, dtype=torch.float64)
    inputs = torch.randn(4, 6, 3, 9, 8, generator=generator, dtype=torch.float64)
    batch = Batch(inputs, torch.arange(24).view(4, 6) % 5, torch.rand(4, 6) > -1, torch.arange(4))
    none, everyone = torch.zeros(4, 0, dtype=torch.float64), torch.ones(4, dtype=torch.bool)
    mine = Vmap(other).grads(x, none, batch, everyone, other.objective, ())[0]
    its = Loop(task).grads(x, none, batch, everyone, task.objective, ())[0]
    torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Vmap(other).outputs(x, none, inputs), Loop(task).outputs(x, none, inputs))


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(3, 4, 3, padding="same"), nn.Conv1d(3, 4, 3), nn.Linear(2, 2)]
)
def test_what_cannot_be_unfolded_is_left_as_it_is(layer: nn.Module) -> None:
    assert not can_unfold(layer)


def test_convolutions_that_wrap_around_are_left_as_they_are() -> None:
    assert not can_unfold(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))
