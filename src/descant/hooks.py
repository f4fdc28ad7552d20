"""What is said of a hook of a method that does not do what it must: its name, what it did, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
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
