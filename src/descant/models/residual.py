"""Residual networks (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from descant.data import FederatedData
from descant.models.shapes import images_of, outputs_of


class Residual(nn.Module):
    """Two 3 x 3 convolutions whose output is added to the input, or to a 1 x 1 convolution of it.

    A plain unit (lp-proj's) has biases in its convolutions, and no normalisation on the way around them.
    """

    def __init__(self, before: int, after: int, stride: int, *, plain: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=plain),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=plain),
            nn.BatchNorm2d(after),
        )
        around: list[nn.Module] = []
        if stride != 1 or before != after:
            around = [nn.Conv2d(before, after, 1, stride, bias=plain)]
            around += [] if plain else [nn.BatchNorm2d(after)]
        self.around = nn.Sequential(*around)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.around(x))
        return y


def resnet18(data: FederatedData, small_images: bool = False) -> nn.Module:
    """ResNet-18: 11,689,512 parameters for 1,000 classes.

    `small_images` takes a 3 x 3 convolution without pooling as the first layer, as is usual for CIFAR's 32 x 32:
    11,173,962 parameters for 10 classes.
    """
    return _resnet(data, (2, 2, 2, 2), small_images)


def resnet34(data: FederatedData, small_images: bool = False) -> nn.Module:
    """ResNet-34: 21,797,672 parameters for 1,000 classes (lp-proj's model for ImageNet).

    `small_images` is as for ResNet-18.
    """
    return _resnet(data, (3, 4, 6, 3), small_images)


def lpproj_fashion(data: FederatedData) -> nn.Module:
    """lp-proj's residual network for Fashion-MNIST: two units of 64 and two of 128 channels; 678,794 parameters."""
    layers, (channels, _, _) = images_of(data)
    layers += _stem(channels, small_images=False, bias=True)
    layers += _stages((2, 2), plain=True)
    return nn.Sequential(*layers, *_head(128, data))


def _resnet(data: FederatedData, units: Sequence[int], small_images: bool) -> nn.Module:
    layers, (channels, _, _) = images_of(data)
    layers += _stem(channels, small_images, bias=False)
    layers += _stages(units, plain=False)
    return nn.Sequential(*layers, *_head(512, data))


def _stem(channels: int, small_images: bool, bias: bool) -> list[nn.Module]:
    if small_images:
        return [nn.Conv2d(channels, 64, 3, padding=1, bias=bias), nn.BatchNorm2d(64), nn.ReLU()]
    first = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=bias)
    return [first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]


def _stages(units: Sequence[int], plain: bool) -> list[nn.Module]:
    """As many units of 64, 128, 256, ... channels; all but the first stage halve height and width."""
    layers: list[nn.Module] = []
    before = 64
    for stage, count in enumerate(units):
        for unit in range(count):
            layers.append(Residual(before, 64 << stage, 2 if stage and not unit else 1, plain=plain))
            before = 64 << stage
    return layers


def _head(features: int, data: FederatedData) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, outputs_of(data))]
