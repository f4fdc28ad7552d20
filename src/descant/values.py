"""Values as a settings file holds them, read as the types that a part asks for."""

from __future__ import annotations

import json
from functools import lru_cache
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np

from descant.errors import SettingError, shown

_SHOULD = "Input should be "
_WORDS = {  # what pydantic calls them -> as all other errors do
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid array": "a list",
}


def typed(where: str, kind: Any, value: Any, *, also: str = "") -> Any:
    """A value as a file could hold it, and no other: true is no number, and '5' is text.

    `also` says what else is allowed there, and is not read here.
    """
    from pydantic import ValidationError
    from pydantic.errors import PydanticUserError

    try:
        text = json.dumps(value, default=_plain_or_refuse)
    except TypeError:
        said = f"a settings file cannot hold a {type(value).__name__}"
        raise SettingError(f"{where} = {shown(value)}: {said}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or a list that holds itself
        raise SettingError(f"{where} = {shown(value)}: no setting is as long as that") from None
    try:
        read = _reader(kind).validate_json(text, strict=True)
    except ValidationError as error:
        problem = _problem(kind, [one["msg"] for one in error.errors()], also)
        problem += _as_list(kind, value, text) if _WORDS["a valid array"] in problem else ""
        raise SettingError(f"{where} = {shown(value)}: {problem}") from None
    except PydanticUserError:  # of a function of the user's own
        raise SettingError(f"{where} = {shown(value)}: its type, {kind}, cannot be read from a file") from None
    if not _usable(read):
        raise SettingError(f"{where} = {shown(value)}: it must be {'text' if isinstance(read, str) else 'finite'}")
    return read


def _problem(kind: Any, messages: list[str], also: str) -> str:
    """What is wrong with a value: what every type that is allowed asks for, or what one of them says of it."""
    several = get_origin(kind) in (Union, UnionType)
    told = messages if several else messages[:1]
    lists = [f"a list of {len(get_args(one))} of these" for one in get_args(kind) if several and _is_fixed(one)]
    if lists:  # what is said of their length, and of one that is missing, says nothing of the others
        told = [message for message in told if message.startswith(_SHOULD) and "array" not in message]
    if not all(message.startswith(_SHOULD) for message in told):
        return f"{messages[0][0].lower()}{messages[0][1:]}"
    asked = [message.removeprefix(_SHOULD) for message in told]
    asked = [*(_WORDS.get(one, one) for one in asked), *lists]
    if several and NoneType in get_args(kind):
        asked.append("nothing")
    return f"it must be {' or '.join(dict.fromkeys([*asked, *([also] if also else [])]))}"


def _as_list(kind: Any, value: Any, text: str) -> str:
    """An example for a value, in JSON the `text`, that stands alone where a list of it would do."""
    try:
        _reader(kind).validate_json(f"[{text}]", strict=True)
    except ValueError:
        return ""
    return f", as in {shown([plain(value)])}"


def _is_fixed(kind: Any) -> bool:
    """Whether a type is that of a list of so many values."""
    return get_origin(kind) is tuple and ... not in get_args(kind)


def _usable(value: Any) -> bool:
    """Whether numbers are finite, and texts can be written and name a file."""
    if isinstance(value, tuple | list):
        return all(map(_usable, value))
    if isinstance(value, str | Path):
        return "\0" not in str(value)
    return not isinstance(value, float) or isfinite(value)


def _plain_or_refuse(value: Any) -> Any:
    if (as_file := plain(value)) is value:
        raise TypeError
    return as_file


@lru_cache(maxsize=256)
def _reader(kind: Any) -> Any:
    """What reads a value of a type from JSON; it takes a while to make."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def plain(value: Any) -> Any:
    """A number of numpy or a path as a file holds it; itself where it is something else."""
    return value.item() if isinstance(value, np.generic) else str(value) if isinstance(value, Path) else value
