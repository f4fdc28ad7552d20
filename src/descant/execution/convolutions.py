"""Other ways to compute convolutions on a GPU, where every client has filters of its own.

Under vmap, K clients with their own filters are one convolution in K groups, for which a GPU has but slow programs.
Unfolded, the patches of the images are the columns of a matrix, and K clients are a batch of products. Direct, all
is summed up by kernels of our own, which write no patches (`descant.execution.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from descant.task import Task
from descant.task.dropout import AddressedDropout

_LARGEST = 128  # weights of one channel in one filter: a thread of a kernel holds a sum for each


class _Unfolded(nn.Conv2d):
    """A convolution as a product of its filters and the unfolded images."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding  # numbers: `can_unfold`
        (high, wide), (down, right), (apart_y, apart_x) = self.kernel_size, self.stride, self.dilation
        image = functional.pad(input, (padding[1], padding[1], padding[0], padding[0]))
        height, width = (
            (image.shape[-2] - apart_y * (high - 1) - 1) // down + 1,
            (image.shape[-1] - apart_x * (wide - 1) - 1) // right + 1,
        )
        # What a weight of the filters meets, at all places, is a slice of the image. Compiled, all are one kernel.
        met = [
            image[..., y : y + down * (height - 1) + 1 : down, x : x + right * (width - 1) + 1 : right]
            for y in range(0, apart_y * high, apart_y)
            for x in range(0, apart_x * wide, apart_x)
        ]
        patches = torch.stack(met, 2).movedim(0, 2).flatten(2).flatten(0, 1)  # [C k k, B L]
        outputs: Tensor = (weight.flatten(1) @ patches).view(len(weight), len(input), height, width).transpose(0, 1)
        return outputs if bias is None else outputs + bias[:, None, None]


def can_unfold(module: nn.Module) -> bool:
    """Whether a layer is a convolution that can be unfolded."""
    plain = type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros"
    return plain and not isinstance(module.padding, str)


def can_be_direct(module: nn.Module) -> bool:
    """Whether a layer is a convolution that the kernels compute."""
    return can_unfold(module) and isinstance(module, nn.Conv2d) and prod(module.kernel_size) <= _LARGEST


def unfolded(task: Task) -> Task:
    """The same task with its convolutions unfolded."""
    return _with(task, can_unfold, _Unfolded)


def direct(task: Task) -> Task:
    """The same task with convolutions that write no patches."""
    from descant.execution.direct import Direct  # it stands on parts of torch that are not for everybody

    return _with(task, can_be_direct, Direct)


def computed(task: Task, way: str) -> Task:
    """The same task with its convolutions computed in a way that `Execution.convolutions` names."""
    ways: dict[str, Callable[[Task], Task]] = {"grouped": lambda task: task, "unfolded": unfolded, "direct": direct}
    return ways[way](task)


def _with(task: Task, can: Callable[[nn.Module], bool], kind: type[nn.Conv2d]) -> Task:
    other = copy(task)
    other._training, other._deployed = deepcopy(task._training), deepcopy(task._deployed)
    sites = {name: other._training.get_submodule(name) for name in task._sites}
    other._sites = {name: site for name, site in sites.items() if isinstance(site, AddressedDropout)}
    for model in (other._training, other._deployed):
        for module in model.modules():
            if can(module):
                module.__class__ = kind  # the same parameters by the same names, computed with otherwise
    return other
