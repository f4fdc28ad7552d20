"""Values as a settings file holds them, read as the types that a part asks for."""

from __future__ import annotations

import json
from functools import lru_cache
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_origin

import numpy as np

from descant.errors import SettingError, shown

_SHOULD = "Input should be "


def typed(where: str, kind: Any, value: Any) -> Any:
    """A value as a file could hold it, and no other: true is no number, and '5' is text."""
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
        problem = _problem(kind, [one["msg"] for one in error.errors()])
        raise SettingError(f"{where} = {shown(value)}: {problem[0].lower()}{problem[1:]}") from None
    except PydanticUserError:  # of a function of the user's own
        raise SettingError(f"{where} = {shown(value)}: its type, {kind}, cannot be read from a file") from None
    if not _usable(read):
        raise SettingError(f"{where} = {shown(value)}: it must be {'text' if isinstance(read, str) else 'finite'}")
    return read


def _problem(kind: Any, messages: list[str]) -> str:
    """What is wrong with a value; where several types are allowed, what each of them asks for."""
    told = messages if get_origin(kind) in (Union, UnionType) else messages[:1]
    asked = [message.removeprefix(_SHOULD) for message in dict.fromkeys(told)]
    said = " or ".join(asked) if len(asked) > 1 and all(m.startswith(_SHOULD) for m in told) else None
    return (messages[0] if said is None else f"{_SHOULD}{said}").replace("a valid array", "a list")


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
