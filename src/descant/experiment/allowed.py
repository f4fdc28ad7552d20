"""What a setting may be: each kind of value checks it, says what is allowed, and writes it as a file holds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from descant.errors import SettingError, shown, unknown
from descant.execution.device import AUTO

_EMPTY = ("meta",)  # devices that hold no numbers


def refusal(name: str, value: object, what: str) -> SettingError:
    """The error for a value that is not allowed; `what` is."""
    return SettingError(f"{name} = {shown(value)}: it must be {what}")


class Allowed(ABC):
    """The values of a setting."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What is allowed, in words that follow 'it must be'."""

    @abstractmethod
    def check(self, name: str, value: Any) -> Any:
        """The value as a run uses it; one that is not allowed is refused by the setting's `name`."""

    def plain(self, value: Any) -> Any:
        """A checked value as a file holds it."""
        return value

    def brief(self, value: Any) -> Any:
        """A checked value without what it says by default: what means the same is the same."""
        return self.plain(value)


def is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)


def _can_be_written(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:  # half of a character, as "\ud800" is
        return False


@dataclass(frozen=True)
class Whole(Allowed):
    """A whole number from `least` on; with `optional`, nothing too."""

    least: int
    most: int | None = None
    optional: bool = False

    @property
    def what(self) -> str:
        span = f"{self.least} or more" if self.most is None else f"from {self.least} to {self.most}"
        return f"a whole number, {span}" + (", or nothing" if self.optional else "")

    def check(self, name: str, value: Any) -> int | None:
        if value is None and self.optional:
            return None
        if not is_whole(value) or value < self.least or (self.most is not None and value > self.most):
            raise refusal(name, value, self.what)
        return int(value)


@dataclass(frozen=True)
class Share(Allowed):
    """A number from 0 to 1."""

    @property
    def what(self) -> str:
        return "a share from 0 to 1"

    def check(self, name: str, value: Any) -> float:
        if not _number(value) or not 0 <= value <= 1:
            raise refusal(name, value, self.what)
        return float(value)


@dataclass(frozen=True)
class HowMany(Allowed):
    """So many clients, or a fraction of them; with `listed`, or which ones. How many there are is known later."""

    least: int
    listed: bool = False
    named: bool = False  # whether a list may hold names as well as numbers
    optional: bool = False
    nothing: str = "everyone"  # what nothing stands for, where it is allowed

    @property
    def what(self) -> str:
        said = f"a whole number of clients, {self.least} or more, a fraction "
        said += "above 0 and at most 1.0" if self.least else "from 0.0 to 1.0"
        said += f", a list of different clients' numbers{' or names' if self.named else ''}" if self.listed else ""
        return said + (f", or nothing for {self.nothing}" if self.optional else "")

    def check(self, name: str, value: Any) -> int | float | tuple[int | str, ...] | None:
        if value is None and self.optional:
            return None
        if is_whole(value) and value >= self.least:
            return int(value)
        if not is_whole(value) and _number(value) and 0 <= value <= 1 and (value > 0 or not self.least):
            return float(value)
        if self.listed and isinstance(value, Sequence) and not isinstance(value, str):
            each = [v for v in value if (is_whole(v) and v >= 0) or (self.named and isinstance(v, str))]
            if len(set(each)) == len(value):
                return tuple(v if isinstance(v, str) else int(v) for v in each)
        raise refusal(name, value, self.what)

    def plain(self, value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    def brief(self, value: Any) -> Any:
        """The value, or nothing where it says the same; lists are sorted."""
        if isinstance(value, tuple):
            value = sorted(value, key=lambda client: (isinstance(client, str), client)) or 0
        nobody = self.optional and self.least == 0 and value == 0
        everyone = self.optional and self.least > 0 and isinstance(value, float) and value == 1
        return None if nobody or everyone else value


@dataclass(frozen=True)
class OneOf(Allowed):
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def what(self) -> str:
        *most, last = (f"'{word}'" for word in self.words)
        return f"{', '.join(most)} or {last}"

    def check(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise refusal(name, value, self.what)
        return value


@dataclass(frozen=True)
class Name(Allowed):
    """A name from a list that may grow long: one that is not there gets the nearest that is."""

    kind: str
    known: Iterable[str]
    nothing: str | None = None  # what nothing stands for, where it is allowed
    own: str = ""  # how Python takes one of the user's own, which no file can name

    @property
    def what(self) -> str:
        said = f"one of {', '.join(self.known)}"
        return said if self.nothing is None else f"{said}, or nothing for {self.nothing}"

    def check(self, name: str, value: Any) -> str | None:
        if value is None and self.nothing is not None:
            return None
        if not isinstance(value, str):
            raise refusal(name, value, self.what)
        if value not in self.known:
            own = f". One of your own is handed over in Python: {self.own}" if self.own and ":" in value else ""
            raise SettingError(f"{name}: {unknown(self.kind, value, self.known)}{own}")
        return value


@dataclass(frozen=True)
class Flag(Allowed):
    """Yes or no."""

    @property
    def what(self) -> str:
        return "true or false"

    def check(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise refusal(name, value, self.what)
        return bool(value)


@dataclass(frozen=True)
class Text(Allowed):
    """Words of one's own, or nothing."""

    @property
    def what(self) -> str:
        return "text, or nothing"

    def check(self, name: str, value: Any) -> str | None:
        if value is not None and not (isinstance(value, str) and value.strip() and _can_be_written(value)):
            raise refusal(name, value, self.what)
        return value


@dataclass(frozen=True)
class Device(Allowed):
    """A device that torch knows; whether it is there shows when the run begins."""

    @property
    def what(self) -> str:
        return "'auto', or a device of torch, such as 'cpu', 'cuda' or 'cuda:1'"

    def check(self, name: str, value: Any) -> str:
        if value == AUTO:
            return AUTO
        try:
            if isinstance(value, str | torch.device) and (found := torch.device(value)).type not in _EMPTY:
                return str(found)
        except (RuntimeError, ValueError):
            pass
        raise refusal(name, value, self.what)


@dataclass(frozen=True)
class Instance(Allowed):
    """An object of Python that no file holds."""

    kinds: tuple[type, ...]
    said: str

    @property
    def what(self) -> str:
        return f"{self.said}, or nothing"

    def check(self, name: str, value: Any) -> Any:
        if value is not None and not isinstance(value, self.kinds):
            raise refusal(name, value, self.what)
        return value
