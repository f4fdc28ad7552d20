"""Operators of our own for torch: for gradients, vmap, compiled programs and CUDA graphs.

Their tensors have a leading axis of clients K, which vmap makes longer. torch cannot look into them, so each
comes with the shapes of its results and with its gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

_LIBRARY: Any = torch.library.Library("descant", "FRAGMENT")  # type: ignore[no-untyped-call]

# The gradients of an operator's tensors, from its arguments, its results and the slopes of these. Each is
# a function that is called if the gradient is needed. Where results are set `aside`, a slope that is zero is None.
Gradients = Callable[
    [tuple[Any, ...], tuple[Tensor, ...], tuple[Tensor | None, ...]], tuple[Callable[[], Any], ...]
]


def define(
    name: str,
    schema: str,
    *,
    tensors: int,
    compute: Callable[..., Any],
    shape: Callable[..., Any],
    gradients: Gradients,
    keeps: bool = False,
    aside: int = 0,
) -> None:
    """Define the operator torch.ops.descant.`name`, whose first so many arguments are tensors [K, ...].

    `shape` gives results of the right shapes, for a compiler. If it `keeps` its results, `gradients` get them. The
    last results, as many as `aside` says, are for the gradients alone, and have none themselves. They are made if
    the last argument is true, which it is where autograd records.
    """
    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.descant, name).default
    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    recorded = _differentiated(operator, tensors, gradients, keeps, aside)
    _LIBRARY.impl(name, recorded, "Autograd", with_keyset=True)
    torch.library.register_fake(f"descant::{name}", shape, lib=_LIBRARY)
    torch.library.register_vmap(f"descant::{name}", _batched(operator, tensors), lib=_LIBRARY)


def _batched(operator: Any, tensors: int) -> Callable[..., tuple[Any, Any]]:
    """An operator under vmap: more clients. What all of them share is not copied."""

    def rule(info: Any, dims: Any, *given: Any) -> tuple[Any, Any]:
        def clients(tensor: Tensor, dim: int | None) -> Tensor:
            moved = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            return moved.flatten(0, 1)

        def apart(tensor: Any) -> Any:
            return tensor.unflatten(0, (info.batch_size, -1))

        found = operator(*map(clients, given[:tensors], dims[:tensors]), *given[tensors:])
        return (apart(found), 0) if isinstance(found, Tensor) else (tuple(map(apart, found)), (0,) * len(found))

    return rule


def _differentiated(
    operator: Any, tensors: int, gradients: Gradients, keeps: bool, aside: int
) -> Callable[..., Any]:
    """An operator that autograd records.

    `torch.library.register_autograd` does not work inside torch.func.grad. So this is the same one level below: a
    function of autograd for the one level of torch.func that is at work, which hands on to the levels under it.
    """

    def forward(ctx: Any, keys: Any, *given: Any) -> Any:
        given = (*given[:-1], True) if aside else given
        # Autograd turns recording off inside its functions, but the levels under this one may record, too.
        with torch.enable_grad():
            found = below(keys, *given)
        results = (found,) if isinstance(found, Tensor) else tuple(found)
        ctx.save_for_backward(*given[:tensors], *(results if keeps else ()))
        ctx.how = given[tensors:]
        if aside:  # no zeros are made for their slopes
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*results[-aside:])
        return found

    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        of_each = gradients((*saved[:tensors], *ctx.how), saved[tensors:], slopes)
        pairs = zip(of_each, ctx.needs_input_grad[1 : tensors + 1], strict=True)
        return None, *(gradient() if needed else None for gradient, needed in pairs), *(None for _ in ctx.how)

    def below(keys: Any, *given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *given)

    both = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type("Differentiated", (_SingleLevelFunction,), both)

    def recorded(keys: Any, *given: Any) -> Any:
        if any(_tangent(tensor) is not None for tensor in given[:tensors]):
            raise NotImplementedError(f"{operator} has no forward-mode derivative: use torch.func.grad or vjp")
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in given[:tensors]):
            return below(keys, *given)
        with enable_single_level_autograd_function():
            return function.apply(keys, *given)

    return recorded


def _tangent(tensor: Tensor) -> Tensor | None:
    """What forward-mode differentiation carries along with a tensor."""
    tangent: Tensor | None = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return tangent
