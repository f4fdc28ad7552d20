"""Convolutions in other words (as matrix products, by operators of our own, in pairs of rows) are convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from descant import Task
from descant.execution import Loop, Vmap
from descant.execution.convolutions import can_be_direct, can_pair, can_unfold, computed, paired
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


@pytest.mark.parametrize("way", ["unfolded", "direct"])
@pytest.mark.parametrize("name", LAYERS)
def test_other_convolutions_are_convolutions(name: str, way: str) -> None:
    task = task_of(LAYERS[name])
    assert any(can_unfold(module) for module in task.model.modules())
    other = computed(task, way)
    kind = {"unfolded": "_Unfolded", "direct": "Direct"}[way]
    assert [type(m).__name__ for m in other._training.modules()].count(kind) == 1
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
    assert not can_be_direct(layer)


def test_filters_too_large_for_the_registers_are_not_direct() -> None:
    layer = nn.Conv2d(1, 2, (13, 10))
    assert can_unfold(layer)
    assert not can_be_direct(layer)
    assert can_be_direct(nn.Conv2d(1, 2, (16, 8)))


def test_convolutions_that_wrap_around_are_left_as_they_are() -> None:
    assert not can_unfold(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 4, (4, 3)),
        nn.Conv2d(3, 4, (2, 3), padding=(0, 2), bias=False),
        nn.Conv2d(1, 3, 4, padding=1),
        nn.Conv2d(3, 4, 3),  # an odd number of rows
    ],
    ids=["plain", "padded, no bias", "one channel", "odd"],
)
def test_convolutions_in_pairs_of_rows_are_convolutions(layer: nn.Conv2d) -> None:
    task = Task(nn.Sequential(layer, nn.Flatten()).double(), loss=squares, metric="accuracy")
    other = paired(task)
    assert [type(m).__name__ for m in other._training.modules()].count("_Paired") == 1
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, 6, layer.in_channels, 9, 8, generator=generator, dtype=torch.float64)
    x = task.start() + 0.1 * torch.randn(2, task.dim, generator=generator, dtype=torch.float64)
    none, everyone = torch.zeros(2, 0, dtype=torch.float64), torch.ones(2, dtype=torch.bool)
    batch = Batch(inputs, torch.zeros(2, 6), torch.ones(2, 6, dtype=torch.bool), torch.arange(2))
    mine, its = (Loop(t).grads(x, none, batch, everyone, t.objective, ())[0] for t in (other, task))
    torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*(Loop(t).outputs(x, none, inputs) for t in (other, task)))


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """One number an example, in which every output has a weight of its own."""
    return (outputs * torch.arange(1, outputs.shape[1] + 1) / outputs.shape[1] - targets[:, None]).square().sum(1)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 9, 3),
        nn.Conv2d(5, 4, 3),
        nn.Conv2d(3, 6, 3).double(),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.Conv2d(3, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.Linear(2, 2),
    ],
)
def test_what_cannot_or_need_not_be_paired_is_left_as_it_is(layer: nn.Module) -> None:
    assert not can_pair(layer)


def test_pairs_are_for_registers_that_hold_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Conv2d(3, 6, 5)
    for capability, fits in (("AVX512", True), ("AVX2", False), ("DEFAULT", False)):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda capability=capability: capability)
        assert can_pair(layer) is fits


@pytest.mark.usefixtures("avx512")
def test_an_image_by_itself_is_convolved_as_it_is() -> None:
    layer = nn.Conv2d(1, 6, 3)
    other = next(
        m for m in paired(Task(nn.Sequential(layer, nn.Flatten(0)))).model.modules() if isinstance(m, nn.Conv2d)
    )
    image = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(other(image), layer(image))
