"""What is said of a hook that does not do what it must: its name, what it did, and what to do.

The hooks of a class are the functions and properties of the class that it must derive from, as of `Method`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from types import FunctionType
from typing import Any

from torch import Tensor

from descant.errors import SettingError


def refusal(hook: str, given: Any, what: str, where: str = "") -> SettingError:
    """The error for a hook that returned `given`, where it must return `what`."""
    return SettingError(f"the hook {hook} returned {_told(given)}{where}: it must return {what}")


def _told(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    if isinstance(given, Mapping):
        return f"one dict ({', '.join(map(str, given)) or 'empty'})"
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)} ({', '.join(type(one).__name__ for one in given)})"
    return "nothing (None)" if given is None else f"a {type(given).__name__}"


@lru_cache(maxsize=256)  # a grid of many runs asks of the same few classes again and again
def check_hooks(cls: type, base: type) -> None:
    """Refuse a class one of whose hooks cannot be called as that of the class `base` is: nothing is called."""
    for name, wanted in vars(base).items():
        own = inspect.getattr_static(cls, name)
        if own is wanted or name.startswith("_"):
            continue
        called = f"the hook {cls.__name__}.{name}"
        if isinstance(wanted, property) and isinstance(own, FunctionType | staticmethod | classmethod):
            raise SettingError(f"{called} is a function, and is read as a property: write @property above it")
        if not isinstance(wanted, FunctionType):
            continue
        takes = inspect.signature(wanted)
        written = f"write it as {name}({', '.join(takes.parameters)})"
        if isinstance(own, property) or not (callable(own) or hasattr(own, "__get__")):
            what = "a property" if isinstance(own, property) else f"a {type(own).__name__}"
            raise SettingError(f"{called} is {what}, and is called as a function: {written}")
        if isinstance(own, FunctionType | staticmethod | classmethod):
            _check_call(called, cls, own, takes, written)


def check_declared(called: str, cls: Any, base: type) -> None:
    """Refuse a class that declares what looks like a field, and has no decorator that makes one of it."""
    known = {*inspect.get_annotations(base), *(field.name for field in fields(cls))}
    left = [
        name
        for each in cls.__mro__
        for name, kind in inspect.get_annotations(each).items()
        if name not in known
        and "ClassVar" not in str(kind)
        and not name.startswith("_")
        and not isinstance(inspect.getattr_static(cls, name, None), property | FunctionType)  # it is given there
    ]
    if left:
        remedy = "write @dataclass(frozen=True, kw_only=True) above the class"
        raise SettingError(f"{called} declares {', '.join(left)}, which the class takes for no field: {remedy}")


def _check_call(called: str, cls: type, own: Any, wanted: inspect.Signature, written: str) -> None:
    """Refuse a hook that does not take what it is called with: what has no default always, the others maybe."""
    try:
        # As an object of the class has it; what it wraps may take something else.
        takes = inspect.signature(own.__get__(object(), cls), follow_wrapped=False)
    except ValueError:
        if not isinstance(own, FunctionType):  # what it stands for is not written in Python
            return
        takes = inspect.Signature()  # it does not even take self
    asked = list(wanted.parameters.values())[1:]  # without self
    for some in ([p for p in asked if p.default is p.empty], asked):
        by_place = [p.name for p in some if p.kind is not p.KEYWORD_ONLY]
        by_name = {p.name: p.name for p in some if p.kind is p.KEYWORD_ONLY}
        try:
            takes.bind(*by_place, **by_name)
        except TypeError as error:
            names = ", ".join([*by_place, *by_name])
            own_names = ", ".join(takes.parameters)
            raise SettingError(f"{called} takes ({own_names}) and is called with ({names}): {written}") from error
