"""Convolutions in other words: the same results, by operations that a processor is quicker at.

Unfolded, for a GPU: under vmap, K clients with their own filters are one convolution in K groups, for which a GPU
has but slow programs. The patches of the images are the columns of a matrix, and K clients a batch of products.

Direct, for a GPU: all is summed up by kernels of our own, which write no patches (`descant.execution.kernels`).

In pairs, for a CPU: it computes as many filters at once as a register has places, 16 of AVX-512 for float32. Where
a layer has 6 filters, 10 places are idle. Two rows of its outputs, computed at once, are 12 filters. Max pooling of
2 x 2 outputs then takes them as they lie, before rows are brought into their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy, deepcopy
from functools import reduce
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


def has_convolutions(task: Task) -> bool:
    """Whether a model convolves images."""
    return any(isinstance(module, nn.Conv2d) for module in task.model.modules())


def can_unfold(module: nn.Module) -> bool:
    """Whether a layer is a convolution that can be unfolded."""
    plain = type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros"
    return plain and not isinstance(module.padding, str)


def can_be_direct(module: nn.Module) -> bool:
    """Whether a layer is a convolution that the kernels compute."""
    return can_unfold(module) and isinstance(module, nn.Conv2d) and prod(module.kernel_size) <= _LARGEST


class _Paired(nn.Conv2d):
    """Two rows of outputs at once: every filter w stands twice, as (w, 0) and as (0, w), one row further down."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = self.rows(input, weight, bias)
        return super()._conv_forward(input, weight, bias) if rows is None else _one_by_one(rows)

    def rows(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """Pairs of rows [B, 2 O, H / 2, W], or None where a last row would be left alone."""
        padding: Any = self.padding  # numbers: `can_pair`
        odd = (input.shape[-2] + 2 * padding[0] - self.kernel_size[0] + 1) % 2
        if odd or input.dim() == 3:  # an image by itself
            return None
        twice = torch.cat([functional.pad(weight, (0, 0, 0, 1)), functional.pad(weight, (0, 0, 1, 0))])
        biases = None if bias is None else torch.cat([bias, bias])
        return functional.conv2d(input, twice, biases, stride=(2, 1), padding=padding)


class _Pooled(_Paired):
    """Pairs of rows, and the largest of 2 x 2 outputs.

    A compiler writes torch's own pooling as loops over single numbers, which take longer than the convolution. Here
    the four outputs of a window are four tensors, whose largest is found by whole registers, as is its gradient.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = self.rows(input, weight, bias)
        if rows is None:
            return functional.max_pool2d(super()._conv_forward(input, weight, bias), 2)
        if rows.shape[-1] % 2 or not rows.is_contiguous(memory_format=torch.channels_last):
            return functional.max_pool2d(_one_by_one(rows), 2)
        images, _, height, width = rows.shape
        windows = rows.permute(0, 2, 3, 1).view(images, height, width // 2, 4, len(weight))  # as they lie
        # As images again, [B, O, H / 2, W / 2], or else a compiler would take their height for channels.
        upper_left, lower_left, upper_right, lower_right = windows.permute(3, 0, 4, 1, 2).unbind()
        return _largest(upper_left, upper_right, lower_left, lower_right)


def _one_by_one(rows: Tensor) -> Tensor:
    """Rows [B, O, H, W] that lie in pairs [B, 2 O, H / 2, W]."""
    apart = rows.view(len(rows), 2, -1, *rows.shape[2:])  # [B, 2, O, H / 2, W]
    return apart.permute(0, 2, 3, 1, 4).flatten(2, 3)


class _Largest(torch.autograd.Function):
    """The largest entries. The first of those that are equal has the gradient, as in torch's pooling.

    A compiler computes few channels by whole registers only where little of the work is a choice between two
    numbers (`where`), and truth values that it keeps it handles one by one. So the place of the largest is a
    number, by multiplying and adding. What is not a number equals nothing: the last place has its gradient.
    """

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        largest = reduce(torch.maximum, tensors)
        place = torch.zeros_like(largest)
        for tensor in reversed(tensors[:-1]):
            place = (tensor != largest).to(place.dtype) * (place + 1)
        return largest, place

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.places = len(inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:
        (place,) = ctx.saved_tensors
        return tuple(torch.where(place == at, slopes[0], 0.0) for at in range(ctx.places))


def _largest(*tensors: Tensor) -> Tensor:
    """The largest entries of some tensors."""
    largest: Tensor = _Largest.apply(*tensors)[0]  # type: ignore[no-untyped-call]
    return largest


_REGISTER = {"AVX512": 64, "AVX2": 32}  # bytes, by torch's name of what the processor can do
_IMAGE = 4  # channels: more of them are no image, but an inner layer's. Its own gradient takes longer in pairs


def can_pair(module: nn.Module) -> bool:
    """Whether a layer is a convolution of images, with so few filters that two rows fit a register."""
    if type(module) is not nn.Conv2d or module.in_channels > _IMAGE or module.groups > 1:
        return False
    moves = (module.stride, module.dilation) == ((1, 1), (1, 1))
    plain = moves and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    places = _REGISTER.get(torch.backends.cpu.get_cpu_capability(), 0) // module.weight.element_size()
    return plain and 2 * module.out_channels <= places


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


def paired(task: Task) -> Task:
    """The same task with convolutions of images computed in pairs of rows, where that fills registers better."""
    other = _with(task, can_pair, _Paired)
    for model in (other._training, other._deployed):
        _pool_in_pairs(model, Counter(module for _, module in model.named_modules(remove_duplicate=False)))
    return other


def _pool_in_pairs(model: nn.Module, used: Counter[nn.Module]) -> None:
    """Let convolutions in pairs pool their outputs themselves where a model is a plain sequence of layers.

    There nobody else looks at what a layer leaves. A ReLU before the pooling may come after it: it leaves the order
    of numbers, and its gradient is 0 where the largest is not positive, whichever of the outputs that was.
    """
    if type(model) is not nn.Sequential:
        return
    layers = list(model)
    for at, layer in enumerate(layers):
        _pool_in_pairs(layer, used)
        after = at + 2 if at + 1 < len(layers) and type(layers[at + 1]) is nn.ReLU else at + 1
        alone = used[layer] == 1 and not any(map(_watched, layers[at : after + 1]))
        if isinstance(layer, _Paired) and alone and after < len(layers) and _halves(layers[after]):
            layer.__class__ = _Pooled
            model[after] = nn.Identity()


def _halves(module: nn.Module) -> bool:
    """Whether a layer is the max pooling of 2 x 2 outputs."""
    if type(module) is not nn.MaxPool2d or module.ceil_mode or module.return_indices:
        return False
    settings = (module.kernel_size, module.stride, module.padding, module.dilation)
    return all(value in (plain, (plain, plain)) for value, plain in zip(settings, (2, 2, 0, 1), strict=True))


def _watched(module: nn.Module) -> bool:
    """Whether somebody looks at what a layer is given or leaves."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _with(task: Task, can: Callable[[nn.Module], bool], kind: type[nn.Conv2d]) -> Task:
    """The same task, in which the layers that can be are of another kind."""
    other = copy(task)
    other._training, other._deployed = deepcopy(task._training), deepcopy(task._deployed)
    sites = {name: other._training.get_submodule(name) for name in task._sites}
    other._sites = {name: site for name, site in sites.items() if isinstance(site, AddressedDropout)}
    for model in (other._training, other._deployed):
        for module in model.modules():
            if can(module):
                module.__class__ = kind  # the same parameters by the same names, computed with otherwise
    return other
