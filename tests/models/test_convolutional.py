"""Convolutional and residual models compute what their papers draw."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from descant.errors import SettingError, TaskError
from descant.models import cnn, ditto_celeba, flame_femnist, flame_medical, linear, lpproj_cifar, lpproj_fashion
from descant.models.residual import Residual

Make = Callable[..., Any]


def test_the_cifar_network_layer_by_layer(make: Make) -> None:
    data = make((3, 32, 32), 10)
    model = lpproj_cifar(data)
    x, p = data.train.inputs, list(model.parameters())
    h = functional.max_pool2d(functional.conv2d(x, p[0], p[1]).relu(), 2)
    h = functional.max_pool2d(functional.conv2d(h, p[2], p[3]).relu(), 2)
    assert h.shape[1:] == (16, 5, 5)
    h = (h.flatten(1) @ p[4].T + p[5]).relu()
    h = (h @ p[6].T + p[7]).relu()
    torch.testing.assert_close(model(x), h @ p[8].T + p[9])


def test_the_celeba_network_pools_before_it_rectifies(make: Make) -> None:
    data = make((3, 84, 84), 2)
    model = ditto_celeba(data).train()
    kinds = [type(layer).__name__ for layer in model.children()]
    assert kinds == ["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"] * 4 + ["Flatten", "Linear"]
    assert model[:-1](data.train.inputs).shape == (4, 6 * 6 * 32)


def _normed(x: Tensor) -> Tensor:
    return (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("after", "stride"), [(4, 1), (8, 2)])
def test_a_residual_unit_by_hand(plain: bool, after: int, stride: int) -> None:
    torch.manual_seed(0)
    unit, x = Residual(4, after, stride, plain=plain), torch.randn(3, 4, 6, 6)
    named = dict(unit.named_parameters())

    def convolved(name: str, x: Tensor, stride: int, padding: int) -> Tensor:
        return functional.conv2d(x, named[f"{name}.weight"], named.get(f"{name}.bias"), stride, padding)

    y = _normed(convolved("body.0", x, stride, 1)).relu()
    y = _normed(convolved("body.3", y, 1, 1))
    around = x
    if after != 4:
        around = convolved("around.0", x, stride, 0)
        around = around if plain else _normed(around)
    torch.testing.assert_close(unit(x), (y + around).relu(), rtol=1e-4, atol=1e-5)
    assert ("body.0.bias" in named) == plain


def test_the_images_inside_lp_projs_residual_network(make: Make) -> None:
    data = make((1, 28, 28), 10)
    model = lpproj_fashion(data)
    sizes, x = [], data.train.inputs
    for layer in model.children():
        x = layer(x)
        sizes.append(tuple(x.shape[1:]))
    assert (64, 14, 14) in sizes and (64, 7, 7) in sizes and (128, 4, 4) in sizes
    assert sum(isinstance(layer, Residual) for layer in model.children()) == 4


def test_grey_images_may_come_without_an_axis_for_the_channel(make: Make) -> None:
    with_axis, without = make((1, 28, 28), 62), make((28, 28), 62)
    torch.manual_seed(0)
    one = flame_femnist(with_axis)
    torch.manual_seed(0)
    other = flame_femnist(without)
    x = torch.randn(2, 28, 28)
    assert torch.equal(one(x[:, None]), other(x))


def test_dropout_comes_before_the_first_linear_layers(make: Make) -> None:
    data = make((28, 28), 10)
    model = cnn(data, hidden=(7, 6), dropout=(0.1, 0.2))
    kinds = [type(layer) for layer in model.children()]
    assert [layer.p for layer in model.children() if isinstance(layer, nn.Dropout)] == [0.1, 0.2]
    assert kinds[-8:] == [nn.Flatten, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU, nn.Linear]
    [drop] = [layer for layer in flame_medical(make((3, 64, 64), 6)).children() if isinstance(layer, nn.Dropout)]
    assert drop.p == 0.2


def test_a_model_starts_from_its_own_draws_only(make: Make) -> None:
    # measuring the shapes must draw nothing: the first layer is that of the seed
    data = make((1, 28, 28), 10)
    torch.manual_seed(3)
    model = cnn(data)
    torch.manual_seed(3)
    first, second = nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
    assert torch.equal(model[0].weight, first.weight) and torch.equal(model[3].weight, second.weight)
    assert torch.equal(model[7].weight, nn.Linear(3136, 128).weight)


def test_what_is_not_an_image_is_refused(make: Make) -> None:
    for model in (cnn, lpproj_fashion):
        with pytest.raises(TaskError, match=r"needs images .* are of shape \[784\]"):
            model(make((784,), 10))
    with pytest.raises(TaskError, match=r"images of shape \[3, 8, 8\] are too small for this model"):
        lpproj_cifar(make((3, 8, 8), 10))
    assert linear(make((784,), 10))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kernels": (5,)}, r"kernels = \(5,\): give one for each of channels = \(32, 64\)"),
        ({"kernels": (4, 5)}, r"kernels = \(4, 5\): they must be positive, and odd with padding"),
        ({"dropout": (0.1, 0.1, 0.1)}, r"dropout = .*: there are only 2 linear layers"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(make: Make, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        cnn(make((28, 28), 10), **settings)
