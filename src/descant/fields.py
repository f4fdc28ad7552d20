"""Fields of parts, checked by their types wherever a part is made: in Python as in a settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from inspect import get_annotations, isabstract
from math import isinf
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from descant.errors import SettingError, shown

_EXAMPLES = 3  # classes that an error names
_BELOW_ALL = -1  # a whole number that no range of a part holds
_IN_SOME = (0, 1, 2, 8)  # every range holds one of these
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "nothing",
}
_TESTS: dict[Any, Callable[[Any], bool]] = {
    int: lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    float: lambda value: isinstance(value, Real) and not isinstance(value, bool | np.bool_),
    bool: lambda value: isinstance(value, bool | np.bool_),
    str: lambda value: isinstance(value, str),
    NoneType: lambda value: value is None,
}


class Checked:
    """A frozen dataclass whose fields are checked by their types when an object is made."""

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(part: Any) -> None:
    """Refuse the first field of a dataclass whose value is not of a type that is declared for it.

    True and false are no numbers. A number of descant's own parts is finite; NaN is left to the checks of ranges,
    which it fails. A list becomes a tuple where a tuple is declared. A default of descant's own parts is what its
    author chose, and is not looked at; one of a user's class must be of its type.
    """
    cls: Any = type(part)  # mypy takes no class for hashable
    _check_defaults(cls)
    for name, (default, kinds, finite) in _declared(cls).items():
        value = written = getattr(part, name)
        if value is default or (isinstance(value, float) and value == default):
            continue
        if isinstance(value, list) and any(get_origin(kind) is tuple for kind in kinds):
            value = _tuples(value)
            object.__setattr__(part, name, value)  # frozen: completed once, here
        if not any(_fits(kind, value) for kind in kinds):
            given = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
            remedy = in_range(_remedy(kinds, value), kinds, cls, name, given)
            raise SettingError(f"{cls.__name__}.{name} = {_said(written)}: {remedy}")
        if finite and _infinite(value):
            raise SettingError(f"{cls.__name__}.{name} = {_said(written)}: it must be a finite number")


@lru_cache(maxsize=256)
def _check_defaults(cls: Any) -> None:
    """Refuse a default of a user's class that is not of its type; once a class, for nothing is made to find out."""
    for name, (default, kinds, _) in _declared(cls).items():
        by = next((base for base in cls.__mro__ if name in get_annotations(base)), cls)
        if default is MISSING or of_descant(by) or any(_fits(kind, default) for kind in kinds):
            continue
        raise SettingError(f"{cls.__name__}.{name} = {_said(default)}: {_remedy(kinds, default)}")


def of_descant(cls: type) -> bool:
    """Whether a class is one of this package, and no user's own."""
    return cls.__module__.partition(".")[0] == "descant"


def in_range(said: str, kinds: tuple[Any, ...], cls: Any, name: str, given: Mapping[str, Any]) -> str:
    """What an error says of a field that must be a whole number, with the range that the class `cls` allows.

    The range stands in the class's own checks alone. What they say of -1, which is in no range, is the range:
    `given` are the other fields, which a class may need to be made, and may be wrong themselves.
    """
    if int not in kinds or float in kinds or not (isinstance(cls, type) and is_dataclass(cls)):
        return said
    if _WORDS[int] not in said:  # it says something else
        return said
    for others in (given, {}):
        what = _asked(cls, name, {**others, name: _BELOW_ALL})
        # What is said of every number is no range: that another field is missing, say.
        if what is not None and any(_asked(cls, name, {**others, name: n}) != what for n in _IN_SOME):
            words = _whole(what.removesuffix(f", or {_WORDS[NoneType]}"))
            before, _, after = said.partition(_WORDS[int])
            return f"{before}{words}{',' if ', ' in words and after.startswith(' or ') else ''}{after}"
    return said


def _asked(cls: Any, name: str, values: Mapping[str, Any]) -> str | None:
    """What a field must be, as the checks of a class say where its value does not do; else nothing."""
    try:
        cls(**values)
    except SettingError as error:
        start, must, what = str(error).partition(": it must be ")
        if must and start == f"{cls.__name__}.{name} = {values[name]}":
            return what
    except Exception:  # a field that is needed and missing, or of a kind that the class cannot be made with
        return None
    return None


def _whole(what: str) -> str:
    """A whole number in the range that `what` says, as in 'from 1 to 16'."""
    if "a positive number" in what:
        return what.replace("a positive number", "a positive whole number")
    return f"{_WORDS[int]}{' ' if what.startswith('from ') else ', '}{what}"


@lru_cache(maxsize=256)
def _declared(cls: Any) -> dict[str, tuple[Any, tuple[Any, ...], bool]]:
    """The default and the types of every field that is given, as it and the classes above declare them, one by one;
    and whether descant declares it.

    A class may declare anew, and more narrowly, what may depend on the round.
    """
    given = {field.name: field.default for field in fields(cls) if field.init}
    found: dict[str, list[Any]] = {name: [] for name in given}
    for base in cls.__mro__:
        hints = _hints(base) if is_dataclass(base) else {}
        for name in found.keys() & hints.keys():
            found[name] += [kind for kind in _one_by_one(hints[name]) if kind not in found[name]]
    ours = {name for base in cls.__mro__ if of_descant(base) for name in get_annotations(base)}
    return {name: (given[name], tuple(kinds), name in ours) for name, kinds in found.items() if kinds}


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except (NameError, TypeError):  # of a class inside a function, whose names are known there alone
        return {}


def _one_by_one(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fits(kind: Any, value: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_fits(one, value) for one in get_args(kind))
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in get_args(kind))
    if origin is tuple:
        each = get_args(kind)
        if not isinstance(value, tuple):
            return False
        if len(each) == 2 and each[1] is Ellipsis:
            return all(_fits(each[0], one) for one in value)
        return len(each) == len(value) and all(map(_fits, each, value))
    if kind in _TESTS:
        return _TESTS[kind](value)
    try:
        return isinstance(value, kind) if isinstance(kind, type) else True
    except TypeError:  # Any, or a protocol
        return True


def _infinite(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_infinite, value))
    return isinstance(value, Real) and isinf(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _said(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else shown(value)


def _remedy(kinds: tuple[Any, ...], value: Any) -> str:
    parts = [kind for kind in kinds if isinstance(kind, type) and kind not in _TESTS]
    if isinstance(value, type) and any(issubclass(value, part) for part in parts):
        return f"it is a class; make an object of it, as in {value.__name__}()"
    named = [cls for part in parts for cls in _below(part) if getattr(cls, "name", None) == value]
    if named:
        return f"that is the name of one; give the object, as in {named[0].__name__}()"
    return f"it must be {' or '.join(dict.fromkeys(map(_word, kinds)))}"


def _below(cls: type) -> list[type]:
    children: list[type] = cls.__subclasses__()
    return [below for child in children for below in (child, *_below(child))]


def _word(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if origin is tuple:
        each = [one for one in get_args(kind) if one is not Ellipsis]
        return f"several, each {_word(each[0])}" if len(each) < len(get_args(kind)) else "a pair"
    return _WORDS.get(kind) or f"an object of {getattr(kind, '__name__', kind)}{_examples(kind)}"


def _examples(kind: Any) -> str:
    """Some classes whose objects would do: those that can be named in a file, too."""
    below = _below(kind) if isinstance(kind, type) else []
    *some, last = [cls.__name__ for cls in below if "name" in vars(cls) and not isabstract(cls)][:_EXAMPLES] or [""]
    return f", such as {', '.join(some)} or {last}" if some else f", such as {last}" if last else ""
