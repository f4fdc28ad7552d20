"""What the tests of convolutions share: a small network, and what torch itself computes for many clients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight


def network(kind: type[nn.Conv2d]) -> nn.Module:
    torch.manual_seed(0)
    layers = (kind(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), kind(3, 4, 3, stride=2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(16, 3)).double()


def torchs_own(image_shape: Any, filter_shape: Any, how: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Random images, filters and slopes of these shapes, in double precision; and client by client, by torch,
    the convolution and the gradients of images and filters. `how` is stride, padding and dilation."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(*image_shape, generator=generator, dtype=torch.float64)
    filters = torch.randn(*filter_shape, generator=generator, dtype=torch.float64)
    pairs = list(zip(images, filters, strict=True))
    outputs = torch.stack([functional.conv2d(x, w, None, *how) for x, w in pairs])
    slopes = torch.randn(*outputs.shape, generator=generator, dtype=torch.float64)
    of_images = [conv2d_input(x.shape, w, g, *how) for (x, w), g in zip(pairs, slopes, strict=True)]
    of_filters = [conv2d_weight(x, w.shape, g, *how) for (x, w), g in zip(pairs, slopes, strict=True)]
    return (images, filters, slopes), (outputs, torch.stack(of_images), torch.stack(of_filters))
