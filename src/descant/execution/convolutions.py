"""Convolutions as matrix products: what a GPU does best, where every client has filters of its own.

Under vmap, K clients with their own filters are one convolution in K groups, for which a GPU has but slow programs.
Unfolded, the patches of the images are the columns of a matrix, and K clients are a batch of products.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from descant.task import Task
from descant.task.dropout import AddressedDropout


class _Unfolded(nn.Conv2d):
    """A convolution as a product of its filters and the unfolded images."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding  # numbers: `can_unfold`
        patches = functional.unfold(input, self.kernel_size, self.dilation, padding, self.stride)  # [B, C k k, L]
        outputs: Tensor = weight.flatten(1) @ patches
        if bias is not None:
            outputs = outputs + bias[:, None]
        reach = [self.dilation[i] * (self.kernel_size[i] - 1) + 1 for i in range(2)]
        height, width = ((input.shape[i - 2] + 2 * padding[i] - reach[i]) // self.stride[i] + 1 for i in range(2))
        return outputs.view(*outputs.shape[:-1], height, width)


def can_unfold(module: nn.Module) -> bool:
    """Whether a layer is a convolution that can be unfolded."""
    plain = type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros"
    return plain and not isinstance(module.padding, str)


def unfolded(task: Task) -> Task:
    """The same task with its convolutions unfolded."""
    other = copy(task)
    other._training, other._deployed = deepcopy(task._training), deepcopy(task._deployed)
    sites = {name: other._training.get_submodule(name) for name in task._sites}
    other._sites = {name: site for name, site in sites.items() if isinstance(site, AddressedDropout)}
    for model in (other._training, other._deployed):
        for module in model.modules():
            if can_unfold(module):
                module.__class__ = _Unfolded  # the same parameters by the same names, computed with otherwise
    return other
