"""A method's step is called here, and what it takes and returns is looked at.

A program that was compiled or captured looks no more: types and shapes are those that it was made for.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor

from descant.errors import SettingError
from descant.execution.programs import name_of
from descant.hooks import refusal
from descant.methods import Down, Until
from descant.methods.base import Step


def stepped(step: Step, x: Any, grad: Any, rows: tuple[Tensor, ...]) -> Any:
    """What `step` makes of x, once it is known to be of x's shape."""
    try:
        new = step(x, grad, *rows)
    except TypeError as error:
        _refuse_call(step, x, grad, rows, error)
        raise
    moved = new.x if isinstance(new, Until) else new
    moved = moved.x if isinstance(moved, Down) else moved
    if not _alike(moved, x):
        raise refusal(hook_of(step), moved, f"the next x, {_kind(x)}")
    if (types := _types(moved)) != _types(x):
        raise refusal(hook_of(step), moved, f"the next x in {_types(x)}", f" in {types}")
    if isinstance(new, Until) and not _flags(new.met, x):
        raise refusal(hook_of(step), new.met, "a tensor [K] of bools, one a client", " as Until.met")
    return new


def hook_of(step: Step) -> str:
    """A step's name for its author: with the class of the method at work, which may have inherited it."""
    while isinstance(step, partial):
        step = step.func
    owner = owner_of(step)
    return name_of(step) if owner is None else f"{type(owner).__name__}.{step.__name__}"


def owner_of(step: Step) -> Any:
    """The method that a step is of; None of one that is a function by itself."""
    while isinstance(step, partial):
        step = step.func
    return getattr(step, "__self__", None)


def _refuse_call(step: Step, x: Any, grad: Any, rows: tuple[Tensor, ...], error: TypeError) -> None:
    """Refuse a step that cannot be called with what it gets; an error from inside of it is another matter."""
    try:
        takes = inspect.signature(step)
    except ValueError:  # a function that is not written in Python
        return
    if next(iter(takes.parameters), "") == "grad":
        said = ", ".join(takes.parameters)
        raise SettingError(f"the hook {hook_of(step)} takes ({said}): x comes first, and then grad") from error
    try:
        takes.bind(x, grad, *rows)
    except TypeError:
        own, names = (
            ", ".join(takes.parameters),
            ", ".join(["x", "grad", *(f"row{i}" for i in range(1, len(rows) + 1))]),
        )
        raise SettingError(
            f"the hook {hook_of(step)} takes ({own}) and was called with ({names}): let it take x, grad and one "
            "tensor for each that local.run is given after x"
        ) from error


def _alike(new: Any, old: Any) -> bool:
    if isinstance(old, Tensor):
        return isinstance(new, Tensor) and new.shape == old.shape
    return isinstance(new, tuple) and len(new) == len(old) and all(map(_alike, new, old))


def _types(x: Any) -> str:
    return ", ".join(str(part.dtype).removeprefix("torch.") for part in (x if isinstance(x, tuple) else (x,)))


def _flags(met: Any, x: Any) -> bool:
    first: Tensor = x[0] if isinstance(x, tuple) else x
    return isinstance(met, Tensor) and met.dtype == torch.bool and met.shape == first.shape[:1]


def _kind(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"a tensor of shape {tuple(x.shape)}"
    return f"a tuple of {len(x)} tensors of shapes {', '.join(str(tuple(part.shape)) for part in x)}"
