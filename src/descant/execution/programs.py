"""What a compiled program depends on, so that it is found again for just that, and for nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from descant.execution.heap import keep_freed

_PLAIN = (type(None), bool, int, str, bytes, torch.dtype, torch.device)


class NoIdentityError(Exception):
    """A step, or something that it captures, may be another one at the next call and look the same."""


class _Itself:
    """An object, known by being that very one. It is held, so that no other one comes to lie at its address."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


def identity(value: Any) -> Hashable:
    """What a step is, with all that it captures: numbers by value, tensors and functions by being the same.

    A bound method is its function and its method's fields; any object is its type and what it holds.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, float | complex):
        return type(value), repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, tuple):
        return type(value), *map(identity, value)
    if isinstance(value, partial):
        return partial, identity(value.func), identity(value.args), identity(tuple(sorted(value.keywords.items())))
    if isinstance(value, MethodType):
        return MethodType, _Itself(value.__func__), identity(value.__self__)
    if isinstance(value, FunctionType):
        if "<" in value.__qualname__:  # a lambda or an inner function: made anew each time
            raise NoIdentityError
        return _Itself(value)
    if isinstance(value, Tensor | type | BuiltinFunctionType):
        return _Itself(value)
    slots = any(getattr(kind, "__slots__", ()) for kind in type(value).__mro__)
    if slots or not hasattr(value, "__dict__"):  # a list, say, which can change
        raise NoIdentityError
    return type(value), *((name, identity(held)) for name, held in sorted(vars(value).items()))


def signature(tree: Any) -> Hashable:
    """What a program is specialised on among its arguments: how they are nested, and the kind of every tensor.

    Tensors have numbers by which they are known to be one and the same: a program that was made where x is also a
    row takes one of them for both.
    """
    numbers: dict[int, int] = {}

    def of(tree: Any) -> Hashable:
        if isinstance(tree, Tensor):
            number = numbers.setdefault(id(tree), len(numbers))
            return number, tree.dtype, tree.shape, tree.stride(), tree.device
        return type(tree), *map(of, tree)

    return of(tree)


def name_of(step: Any) -> str:
    """A step's name, which does not change from process to process."""
    while isinstance(step, partial):
        step = step.func
    return getattr(step, "__qualname__", type(step).__name__)


def reason(error: Exception) -> str:
    """The first line of an error, without the addresses of objects, which change from process to process."""
    line = (str(error).splitlines() or [""])[0]
    return re.sub(r"( at)? 0x[0-9a-fA-F]+", "", line) or type(error).__name__


def compiled(function: Callable[..., Any], number: int, on_cpu: bool = False) -> Callable[..., Any]:
    """A program for arguments of one signature."""

    def program(*arguments: Any) -> Any:
        return function(*arguments)

    # torch keeps what it compiled by code object, a few for each, and tells them apart by checking, before every
    # call, all that they depend on, which takes as long as the step of a small model. A code object for each
    # program makes that needless, and no number of programs too many.
    program.__code__ = program.__code__.replace(co_name=f"program_{number}")
    options: dict[str, Any] = {"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}
    if on_cpu:
        keep_freed()
        # A minibatch that two loops read is collected once, and not by each of them for every number anew.
        options["realize_reads_threshold"] = 1
    return torch.compile(program, dynamic=False, fullgraph=True, options=options)
