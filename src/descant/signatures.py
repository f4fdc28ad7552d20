"""What a class or a function takes: its parameters, their types and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Union, get_args, get_type_hints

from descant.errors import SettingError
from descant.methods import ByRound


def parameters_of(make: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    try:
        return _parameters(make)
    except ValueError as error:  # a function written in C
        raise SettingError(f"{make!r} does not say what it takes: write a function around it") from error


@lru_cache(maxsize=256)  # a grid of many runs asks for the same few classes thousands of times
def _parameters(make: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(make).parameters.values())


def default_of(make: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The default of a parameter, also where a dataclass makes it anew for every object."""
    for field in fields(make) if is_dataclass(make) else ():
        if field.name == parameter.name and field.default_factory is not MISSING:
            return field.default_factory()
    return parameter.default


@lru_cache(maxsize=256)
def settable(make: Callable[..., Any], skip: int) -> Mapping[str, Any]:
    """The settings that `make` takes, with their types."""
    of = make.__init__ if isinstance(make, type) and not is_dataclass(make) else make  # type: ignore[misc]
    hints = _hints(of)
    return {p.name: _with_schedules(make, p.name, hints.get(p.name, Any)) for p in parameters_of(make)[skip:]}


def _with_schedules(make: Any, field: str, hint: Any) -> Any:
    """The type of a field, also where a class declares anew, and more narrowly, what may depend on the round."""
    bases = make.__mro__[1:] if isinstance(make, type) and is_dataclass(make) else ()
    scheduled = any(ByRound in get_args(_hints(base).get(field)) for base in bases)
    return Union[hint, ByRound] if scheduled else hint  # noqa: UP007


@lru_cache(maxsize=256)
def _hints(of: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(of)
    except NameError:  # of a function of the user's own, whose types are known to a type checker alone
        return {}
