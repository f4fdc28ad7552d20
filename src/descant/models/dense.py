"""Linear layers, with ReLU between them."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from torch import nn

from descant.data import FederatedData
from descant.errors import TaskError
from descant.models.shapes import check_widths, outputs_of


def linear(data: FederatedData) -> nn.Module:
    """One linear layer: logistic regression for classes, linear regression for numbers."""
    return mlp(data, hidden=())


def mlp(data: FederatedData, hidden: tuple[int, ...] = (100,)) -> nn.Module:
    """Linear layers with ReLU between them; `hidden` gives their widths."""
    check_widths("mlp", hidden=hidden)
    widths = [prod(data.input_shape), *hidden, outputs_of(data)]
    flat: list[nn.Module] = [nn.Flatten()] if len(data.input_shape) != 1 else []
    return nn.Sequential(*flat, *linear_layers(widths))


def linear_layers(widths: list[int]) -> list[nn.Module]:
    """Linear layers from width to width, with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.ReLU(), nn.Linear(before, after)] if layers else [nn.Linear(before, after)]
    return layers


def lpproj_mnist(data: FederatedData) -> nn.Module:
    """lp-proj's model for MNIST: one hidden layer of 100; 79,510 parameters."""
    return mlp(data, hidden=(100,))


def lpproj_emnist(data: FederatedData) -> nn.Module:
    """lp-proj's model for EMNIST: two hidden layers of 100; 94,862 parameters for 62 classes."""
    return mlp(data, hidden=(100, 100))


def flame_mlp(data: FederatedData) -> nn.Module:
    """FLAME's MLP for MNIST and Fashion-MNIST: hidden layers of 128 and 64; 109,386 parameters.

    The 7,850 of the paper's Table II are those of a logistic model (`linear`).
    """
    return mlp(data, hidden=(128, 64))


def svm(data: FederatedData) -> nn.Module:
    """A linear support vector machine, for the loss "hinge"; starts at zero (Ditto's model for Vehicle).

    Ditto's objective adds 0.01 ||W||^2 to the mean hinge loss: weight_decay=0.02, which decays the bias too.
    """
    if data.classes not in (None, 2):
        raise TaskError(f"an svm tells two classes apart, and data {data.name!r} has {data.classes}")
    layer = nn.Linear(prod(data.input_shape), 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer) if len(data.input_shape) != 1 else layer
