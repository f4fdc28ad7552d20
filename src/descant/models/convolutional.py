"""Small convolutional networks: convolutions with ReLU and max pooling, then linear layers."""

from __future__ import annotations

from copy import deepcopy
from math import prod

import torch
from torch import nn

from descant.data import FederatedData
from descant.errors import SettingError, TaskError
from descant.models.dense import linear_layers
from descant.models.shapes import check_widths, images_of, outputs_of


def cnn(
    data: FederatedData,
    channels: tuple[int, ...] = (32, 64),
    kernels: tuple[int, ...] = (5, 5),
    padding: bool = True,
    hidden: tuple[int, ...] = (128,),
    dropout: tuple[float, ...] = (),
) -> nn.Module:
    """Convolutions of `channels` and `kernels`, each with ReLU and 2 x 2 max pooling; then layers `hidden`.

    With `padding` a convolution keeps height and width (odd kernels).  `dropout` gives the probabilities before
    the linear layers, in their order; where they run out there is none.
    """
    check_widths("cnn", channels=channels, kernels=kernels, hidden=hidden)
    if not all(0 <= p < 1 for p in dropout):
        raise SettingError(f"cnn: dropout = {dropout!r}: they must be probabilities from 0 to below 1")
    if len(kernels) != len(channels):
        raise SettingError(f"cnn: kernels = {kernels!r}: give one for each of channels = {channels!r}")
    if any(kernel < 1 or (padding and kernel % 2 == 0) for kernel in kernels):
        raise SettingError(f"cnn: kernels = {kernels!r}: they must be positive, and odd with padding")
    if len(dropout) > len(hidden) + 1:
        raise SettingError(f"cnn: dropout = {dropout!r}: there are only {len(hidden) + 1} linear layers")
    layers, shape = images_of(data)
    before = shape[0]
    for after, kernel in zip(channels, kernels, strict=True):
        layers += [nn.Conv2d(before, after, kernel, padding=kernel // 2 if padding else 0)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        before = after
    layers += [nn.Flatten()]
    return nn.Sequential(*layers, *_head(_features(layers, data), hidden, outputs_of(data), dropout))


def lpproj_cifar(data: FederatedData) -> nn.Module:
    """lp-proj's CNN for CIFAR-10: 5 x 5 convolutions of 6 and 16 channels, then 120 and 84; 62,006 parameters."""
    return cnn(data, (6, 16), (5, 5), padding=False, hidden=(120, 84))


def flame_cifar(data: FederatedData) -> nn.Module:
    """FLAME's CNN for CIFAR-10: 3 x 3 convolutions of 16 and 32 channels, then 128; 268,650 parameters."""
    return cnn(data, (16, 32), (3, 3), hidden=(128,))


def flame_medical(data: FederatedData) -> nn.Module:
    """FLAME's CNN for Medical-MNIST: 3 x 3 convolutions of 32 and 16 channels, then 64; 206,678 parameters.

    That is for images of three channels (64 x 64); grey ones make it 206,102.  Dropout of 0.2 comes before the
    first linear layer, as in the authors' code (their text has it before the last).
    """
    return cnn(data, (32, 16), (3, 3), padding=False, hidden=(64,), dropout=(0.2,))


def flame_femnist(data: FederatedData) -> nn.Module:
    """FLAME's CNN for FEMNIST: convolutions 7 x 7 and 3 x 3 of 32 and 64 channels; 214,590 parameters."""
    return cnn(data, (32, 64), (7, 3), hidden=())


def ditto_fashion(data: FederatedData) -> nn.Module:
    """Ditto's CNN for Fashion-MNIST: 5 x 5 convolutions of 32 and 64 channels, then 1,024."""
    return cnn(data, (32, 64), (5, 5), hidden=(1024,))


def ditto_femnist(data: FederatedData) -> nn.Module:
    """Ditto's CNN for FEMNIST: 5 x 5 convolutions of 16 and 32 channels, then 128, with dropout of .25 and .5.

    Dropout is on in training only; in the authors' code it is on in tests as well.
    """
    return cnn(data, (16, 32), (5, 5), hidden=(128,), dropout=(0.25, 0.5))


def ditto_celeba(data: FederatedData) -> nn.Module:
    """Ditto's CNN for CelebA: four 3 x 3 convolutions of 32 channels with BatchNorm, max pooling and ReLU.

    Odd heights and widths are pooled upwards (84, 42, 21, 11, 6).  Tests use running statistics; the authors'
    code uses those of the batch there too.
    """
    layers, shape = images_of(data)
    before = shape[0]
    for _ in range(4):
        layers += [nn.Conv2d(before, 32, 3, padding=1), nn.BatchNorm2d(32)]
        layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
        before = 32
    layers += [nn.Flatten()]
    return nn.Sequential(*layers, *_head(_features(layers, data), (), outputs_of(data), ()))


def _features(layers: list[nn.Module], data: FederatedData) -> int:
    """How many numbers the layers make of an example."""
    shapes_only = deepcopy(nn.Sequential(*layers)).to("meta")
    try:
        return prod(shapes_only(torch.empty(2, *data.input_shape, device="meta")).shape[1:])
    except RuntimeError as error:
        shape = list(data.input_shape)
        raise TaskError(f"images of shape {shape} are too small for this model: {error}") from error


def _head(features: int, hidden: tuple[int, ...], outputs: int, dropout: tuple[float, ...]) -> list[nn.Module]:
    """Linear layers with ReLU between them, and dropout before the first ones."""
    layers: list[nn.Module] = []
    left = list(dropout)
    for layer in linear_layers([features, *hidden, outputs]):
        if isinstance(layer, nn.Linear) and left:
            layers.append(nn.Dropout(left.pop(0)))
        layers.append(layer)
    return layers
