"""A forward pass must be a function of its inputs, its parameters, its running statistics and its key.

Whatever else it looked at would depend on the order of the work, and whatever else it kept would
belong to no client.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from descant.errors import TaskError
from descant.task.dropout import AddressedDropout
from descant.task.products import FewOutputs


def refuse_hidden_state(module: nn.Module, inputs: Tensor) -> None:
    """Refuse, by its name, a submodule that draws random numbers of its own or that keeps state."""
    watched, inputs = deepcopy(module).cpu(), inputs.cpu().clone()
    before = inputs.clone()
    constants = {name: buffer.clone() for name, buffer in _constants(watched).items()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        drawn, first = _watch(watched, inputs)
        if not torch.equal(inputs, before):
            raise TaskError(
                "the forward pass changes its inputs in place, which are the clients' data: let it make new ones, "
                "as in x = x * 2 in the place of x *= 2"
            )
        _, second = _watch(watched, inputs)
    if drawn:  # the innermost module finishes first
        name = drawn[0]
        raise TaskError(
            f"{_called(name, watched)} draws random numbers in its forward pass, which would depend on the order "
            f"of the work: {_remedy(name, watched.get_submodule(name))}"
        )
    for name, buffer in _constants(watched).items():
        if not torch.equal(buffer, constants[name]):
            raise TaskError(
                f"the forward pass changes the buffer '{name}', which no client owns: make it an output"
            )
    for once, again in zip(first, second, strict=True):
        if _same(once.given, again.given) and not _same(once.returned, again.returned):
            raise TaskError(
                f"{once.where} gives different outputs for the same inputs: it must neither draw random numbers "
                "of its own nor count its calls"
            )


def _called(name: str, module: nn.Module) -> str:
    layer = module.get_submodule(name)
    kind = "Linear" if isinstance(layer, FewOutputs) else type(layer).__name__  # as the user wrote it
    return f"{kind} ('{name}')" if name else kind


def _remedy(name: str, module: nn.Module) -> str:
    """What to do about a layer that draws. Those of torch that take a `dropout` draw in a kernel of their own."""
    at = f"model.{name}" if name else "model"
    if isinstance(module, nn.MultiheadAttention):
        return f"set {at}.dropout = 0.0; nn.Dropout modules around it, as in nn.TransformerEncoderLayer, stay"
    if isinstance(module, nn.RNNBase):
        kind = type(module).__name__
        return (
            f"set {at}.dropout = 0.0, or write its layers as nn.{kind} of one layer each, with nn.Dropout between"
        )
    return "use nn.Dropout modules, whose draws descant addresses"


class _Call(NamedTuple):
    """What a submodule was given and returned, in one forward pass."""

    where: str
    given: object
    returned: object


def _same(once: Any, again: Any) -> bool:
    if isinstance(once, tuple):
        return len(once) == len(again) and all(map(_same, once, again))
    if isinstance(once, Tensor):
        return once.shape == again.shape and torch.allclose(once, again, rtol=1e-3, equal_nan=True)
    return True  # a mask or a state that is not there


def _constants(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are neither running statistics nor keys."""
    moving = (nn.modules.batchnorm._NormBase, AddressedDropout)
    ours = {id(b) for m in module.modules() if isinstance(m, moving) for b in m.buffers(recurse=False)}
    return {name: buffer for name, buffer in module.named_buffers() if id(buffer) not in ours}


def _watch(module: nn.Module, inputs: Tensor) -> tuple[list[str], list[_Call]]:
    """One forward pass: the submodules that drew from torch's generator, and all calls as they finish."""
    drawn: list[str] = []
    calls: list[_Call] = []
    before: list[Tensor] = []
    hooks = []

    def watch(name: str, where: str, module: nn.Module) -> None:
        def after(module: nn.Module, given: object, returned: object) -> None:
            if not torch.equal(before.pop(), torch.get_rng_state()):
                drawn.append(name)
            calls.append(_Call(where, given, returned))

        hooks.append(module.register_forward_pre_hook(lambda *_: before.append(torch.get_rng_state())))
        hooks.append(module.register_forward_hook(after))

    for name, submodule in module.named_modules():
        if isinstance(submodule, AddressedDropout):
            submodule.uses = 0
        watch(name, _called(name, module), submodule)
    module(inputs)
    for hook in hooks:
        hook.remove()
    return drawn, calls
