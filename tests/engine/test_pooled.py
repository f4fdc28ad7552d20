"""Convolutions in pairs of rows that pool their outputs themselves: torch's convolution, ReLU and pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional

from descant.execution.convolutions import _largest, _Pooled, paired
from descant.task import Task

pytestmark = pytest.mark.usefixtures("avx512")


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")


def pools(task: Task) -> bool:
    return any(isinstance(module, _Pooled) for module in task._training.modules())


def weighted(outputs: Tensor) -> Tensor:
    """A number in which every output has a weight of its own, and a curvature."""
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
    return (weights * outputs + 0.1 * outputs**2).sum()


def slopes(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """The gradients of a model's parameters and of its images."""
    named = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def value(all_of_it: tuple[dict[str, Tensor], Tensor]) -> Tensor:
        return weighted(functional_call(model, all_of_it[0], all_of_it[1]))

    of_named, of_images = grad(value)((named, images))
    return {**of_named, "images": of_images}


def both(*layers: nn.Module, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Module]:
    """A sequence of layers as it is, and as it is computed in pairs."""
    task = Task(nn.Sequential(*layers).to(dtype), loss=lambda o, t: o.flatten(1).sum(1), metric="accuracy")
    other = paired(task)
    assert not pools(task) and pools(other)
    return task._training, other._training


def images(channels: int = 3, high: int = 10, wide: int = 12, dtype: torch.dtype = torch.float64) -> Tensor:
    drawn = torch.randn(5, channels, high, wide, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return drawn.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        lambda: (nn.Conv2d(3, 4, 3, bias=False), nn.MaxPool2d((2, 2), stride=2), nn.ReLU()),
        lambda: (nn.Conv2d(3, 3, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2)),
        lambda: (nn.Sequential(nn.Conv2d(3, 4, (5, 3)), nn.MaxPool2d(2)), nn.Tanh()),
    ],
    ids=["with ReLU", "no bias, ReLU later", "padded, one more layer", "nested"],
)
def test_outputs_and_gradients_are_torchs(
    make: Callable[[], tuple[nn.Module, ...]], dtype: torch.dtype, compiled: bool, fresh_compiler: None
) -> None:
    torch.manual_seed(0)
    plain, mine = both(*make(), dtype=dtype)
    inputs = images(dtype=dtype)
    near: dict[str, Any] = (
        {"rtol": 1e-10, "atol": 1e-12} if dtype is torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    )
    torch.testing.assert_close(mine(inputs), plain(inputs), **near)
    found = (torch.compile(slopes) if compiled else slopes)(mine, inputs)
    for name, slope in slopes(plain, inputs).items():
        torch.testing.assert_close(found[name], slope, **near)


@pytest.mark.parametrize(
    "inputs",
    [images(high=9), images(wide=11), images(high=9, wide=11), images().contiguous()],
    ids=["odd height", "odd width", "both odd", "another layout"],
)
def test_what_does_not_fit_is_computed_the_ordinary_way(inputs: Tensor) -> None:
    torch.manual_seed(0)
    plain, mine = both(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    torch.testing.assert_close(mine(inputs), plain(inputs), rtol=1e-10, atol=1e-12)
    found = slopes(mine, inputs)
    for name, slope in slopes(plain, inputs).items():
        torch.testing.assert_close(found[name], slope, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(mine(inputs[0]), plain(inputs[0]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("between", [nn.ReLU(), None], ids=["with ReLU", "without"])
def test_of_equal_outputs_the_first_has_the_gradient(between: nn.Module | None) -> None:
    """Images of a few whole numbers under filters of whole numbers: sums are exact, and many of them are equal."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), *([] if between is None else [between]), nn.MaxPool2d(2)]
    with torch.no_grad():
        for parameter in layers[0].parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    plain, mine = both(*layers)
    inputs = (images() > 1).double()
    outputs = plain[0](inputs)
    windows = outputs.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2).sort().values
    assert ((windows[..., -1] == windows[..., -2]) & (windows[..., -1] > 0)).double().mean() > 0.05
    assert torch.equal(mine(inputs), plain(inputs))
    found = slopes(mine, inputs)
    for name, slope in slopes(plain, inputs).items():
        torch.testing.assert_close(found[name], slope, rtol=1e-10, atol=1e-12)


def test_numbers_that_are_not_finite_come_through() -> None:
    some = torch.tensor([float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1.0])
    outputs = some[torch.randint(0, 6, (4, 20, 3, 8, 8), generator=torch.Generator().manual_seed(0))].flatten(0, 1)
    windows = outputs.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2)
    torch.testing.assert_close(_largest(*windows.unbind(-1)), functional.max_pool2d(outputs, 2), equal_nan=True)


def test_it_can_be_differentiated_twice() -> None:
    torch.manual_seed(0)
    plain, mine = both(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    inputs = images()

    def steep(model: nn.Module) -> Tensor:
        def value(weight: Tensor) -> Tensor:
            return weighted(functional_call(model, {"0.weight": weight}, inputs))

        weight = next(model.parameters()).detach()
        second: Tensor = grad(lambda w: grad(value)(w).square().sum())(weight)
        return second

    torch.testing.assert_close(steep(mine), steep(plain), rtol=1e-9, atol=1e-9)


class Looks(nn.Sequential):
    """A sequence that does as it likes with its layers."""

    def forward(self, images: Tensor) -> Tensor:
        unpooled: Tensor = self[0](images)
        left: Tensor = self[2](self[1](unpooled))
        return left.flatten(1).sum(1) + unpooled.flatten(1).sum(1)


def watched(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda *_: None)
    return layer


SHARED = nn.Conv2d(3, 3, 3, padding=1)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2, padding=1)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2, dilation=2)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)],
        [nn.Conv2d(3, 4, 3), nn.Tanh(), nn.MaxPool2d(2)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(3, 4, 3), nn.ReLU()],
        [nn.Conv2d(3, 4, 3)],
        [nn.Conv2d(3, 9, 3), nn.ReLU(), nn.MaxPool2d(2)],
        [watched(nn.Conv2d(3, 4, 3)), nn.ReLU(), nn.MaxPool2d(2)],
        [nn.Conv2d(3, 4, 3), watched(nn.ReLU()), nn.MaxPool2d(2)],
        [SHARED, nn.ReLU(), nn.MaxPool2d(2), SHARED],
        [Looks(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))],
    ],
    ids=str,
)
def test_other_layers_are_left_as_they_are(layers: list[nn.Module]) -> None:
    task = Task(nn.Sequential(*layers), loss=lambda o, t: o.flatten(1).sum(1), metric="accuracy")
    other = paired(task)
    assert not pools(other)
    torch.testing.assert_close(
        other._training(images(dtype=torch.float32)), task._training(images(dtype=torch.float32))
    )
