"""Convolutions of K clients at once as operators of torch: for gradients, vmap, compiled programs and CUDA graphs.

Under vmap, a convolution with filters of each client's own is one operator on tensors with a leading K. On a GPU it
is the kernels of `descant.execution.kernels`; elsewhere, torch's own convolution in K groups.

There are three operators: the convolution and its two gradients. All are linear in both of their tensors, and the
gradients of each are the two others, so they can be differentiated any number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn import grad as plain

from descant.task.operators import define

_HOW = "SymInt[] stride, SymInt[] padding, SymInt[] dilation"
_SCHEMAS = {
    "convolution": f"Tensor images, Tensor filters, {_HOW}",
    "images_gradient": f"Tensor slopes, Tensor filters, SymInt[] size, {_HOW}",
    "filters_gradient": f"Tensor images, Tensor slopes, SymInt[] size, {_HOW}",
}


class Direct(nn.Conv2d):
    """A convolution of images [B, C, H, W], which vmap makes one of all clients."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.dim() != 4:
            alone: Tensor = super()._conv_forward(input, weight, bias)
            return alone
        how = (self.stride, self.padding, self.dilation)
        outputs: Tensor = _ops().convolution(input[None], weight[None], *how)[0]
        return outputs if bias is None else outputs + bias[:, None, None]


def _ops() -> Any:
    return torch.ops.descant


# What the operators compute, for images [K, B, C, H, W], filters [K, O, C, h, w] and slopes [K, B, O, OH, OW], that
# is the gradient of the outputs.


def _convolution(images: Tensor, filters: Tensor, stride: Any, padding: Any, dilation: Any) -> Tensor:
    if images.is_cuda:
        from descant.execution import kernels

        return kernels.convolution(images, filters, stride, padding, dilation)
    K = len(images)
    grouped = functional.conv2d(_in_groups(images), filters.flatten(0, 1), None, stride, padding, dilation, K)
    return _of_groups(grouped, K)


def _images_gradient(
    slopes: Tensor, filters: Tensor, size: Any, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    if slopes.is_cuda:
        from descant.execution import kernels

        return kernels.images_gradient(slopes, filters, size, stride, padding, dilation)
    K, B, C = len(slopes), slopes.shape[1], filters.shape[2]
    given = ((B, K * C, *size), filters.flatten(0, 1), _in_groups(slopes), stride, padding, dilation, K)
    return _of_groups(plain.conv2d_input(*given), K)  # type: ignore[no-untyped-call]


def _filters_gradient(
    images: Tensor, slopes: Tensor, size: Any, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    if images.is_cuda:
        from descant.execution import kernels

        return kernels.filters_gradient(images, slopes, size, stride, padding, dilation)
    K, C, O = len(images), images.shape[2], slopes.shape[2]  # noqa: E741
    given = (_in_groups(images), (K * O, C, *size), _in_groups(slopes), stride, padding, dilation, K)
    gradient: Tensor = plain.conv2d_weight(*given)  # type: ignore[no-untyped-call]
    return gradient.view(K, O, C, *size)


def _in_groups(tensor: Tensor) -> Tensor:
    """[K, B, C, ...] as [B, K C, ...]: the channels of each client are a group."""
    return tensor.transpose(0, 1).flatten(1, 2)


def _of_groups(tensor: Tensor, K: int) -> Tensor:
    return tensor.view(len(tensor), K, -1, *tensor.shape[2:]).transpose(0, 1).contiguous()


# The shapes of the results, for a compiler.


def _convolution_shape(images: Tensor, filters: Tensor, stride: Any, padding: Any, dilation: Any) -> Tensor:
    axes = zip(images.shape[3:], filters.shape[3:], stride, padding, dilation, strict=True)
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]
    return images.new_empty(*images.shape[:2], filters.shape[1], *size)


def _images_shape(slopes: Tensor, filters: Tensor, size: Any, *how: Any) -> Tensor:
    return slopes.new_empty(*slopes.shape[:2], filters.shape[2], *size)


def _filters_shape(images: Tensor, slopes: Tensor, size: Any, *how: Any) -> Tensor:
    return images.new_empty(len(images), slopes.shape[2], images.shape[2], *size)


# The gradients of results a = operator(b, c): each a function of b, c and of the gradient of a.


def _of_convolution(images: Tensor, filters: Tensor, slopes: Tensor, how: Any) -> tuple[Any, Any]:
    return (
        lambda: _ops().images_gradient(slopes, filters, images.shape[3:], *how),
        lambda: _ops().filters_gradient(images, slopes, filters.shape[3:], *how),
    )


def _of_images_gradient(slopes: Tensor, filters: Tensor, images: Tensor, how: Any) -> tuple[Any, Any]:
    return (
        lambda: _ops().convolution(images, filters, *how[1:]),
        lambda: _ops().filters_gradient(images, slopes, filters.shape[3:], *how[1:]),
    )


def _of_filters_gradient(images: Tensor, slopes: Tensor, filters: Tensor, how: Any) -> tuple[Any, Any]:
    return (
        lambda: _ops().images_gradient(slopes, filters, images.shape[3:], *how[1:]),
        lambda: _ops().convolution(images, filters, *how[1:]),
    )


def _define(name: str, compute: Any, shape: Any, of: Callable[..., tuple[Any, Any]]) -> None:
    def gradients(given: tuple[Any, ...], results: tuple[Tensor, ...], slopes: Any) -> tuple[Any, Any]:
        first, second, *how = given
        return of(first, second, slopes[0], how)

    schema = f"({_SCHEMAS[name]}) -> Tensor"
    define(name, schema, tensors=2, compute=compute, shape=shape, gradients=gradients)


_define("convolution", _convolution, _convolution_shape, _of_convolution)
_define("images_gradient", _images_gradient, _images_shape, _of_images_gradient)
_define("filters_gradient", _filters_gradient, _filters_shape, _of_filters_gradient)
