"""Errors that a user can act on: each names what was wrong and says what to do."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path

_LONGEST_WHY = 300  # letters of what a compiler says
_LONGEST = 200  # characters of a value in an error
_LONGEST_PART = 100  # characters of a part with a name of its own, such as a method
_OWN = re.compile(r"(?:([\w+-]+)(?:\.|: ))?(\w+) = ")  # `FedAvg.lr = 0`, `synthetic: clients = 0` or `seed = -1`


class SettingError(ValueError):
    """A setting that cannot be used, with its name, its value and what is allowed."""


class NotTogetherError(SettingError):
    """A `setting` of a run that does not go with its method."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting = setting


class ResumeError(SettingError):
    """An interrupted run that cannot be resumed: at all, or not with the task and data that were given."""


class MeanwhileError(ResumeError):
    """A folder in which another process has run, or begun, something since it was looked at."""


class BusyError(SettingError):
    """A folder that another process is at work in."""


class DamagedError(ValueError):
    """A file of a run that is not what was written: damaged, missing, changed by hand, or of another run.

    What can be done about it depends on who reads the file: `advised` says the same with another remedy.
    """

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        super().__init__(path, what, remedy)
        self.path, self.what, self.remedy = path, what, remedy

    def __str__(self) -> str:
        return f"{self.path} {self.what}: {self.remedy}"

    def advised(self, remedy: str) -> DamagedError:
        return DamagedError(self.path, self.what, remedy)


class LeftOutWarning(UserWarning):
    """A damaged or unfinished run among others, which are reported without it."""


class TaskError(ValueError):
    """A model, loss or metric that cannot be trained for many clients at once, or at all."""


class CodecError(ValueError):
    """A message that cannot be encoded, or bytes that cannot be decoded."""


class NoModelError(LookupError):
    """A model that a run did not keep."""


class NoSharedModelError(LookupError):
    """The method has no shared (global) model."""


class NoFiguresWarning(UserWarning):
    """A run with figures that say nothing, or are not there, for want of the examples that they would be of."""


class NoTieWarning(UserWarning):
    """A method whose clients learn nothing from each other, by a value that is allowed and may be a mistake."""


class MixingWarning(UserWarning):
    """What a method makes of a client depends on the others in the batch."""


class SlowWarning(UserWarning):
    """Work that is carried out, with the same result, more slowly than it could be here."""

    @classmethod
    def since(cls, error: Exception, said: str) -> SlowWarning:
        """What is said, and in one line the error that is the reason for it."""
        return cls(f"{said} ({' '.join(f'{type(error).__name__}: {error}'.split())[:_LONGEST_WHY]})")


_RUN = "in the run of "


def in_the_run(error: BaseException, run: str) -> None:
    """Note in which run an error came up, in the place of what was noted of that before."""
    error.__notes__ = [note for note in getattr(error, "__notes__", ()) if not note.startswith(_RUN)]
    error.add_note(f"{_RUN}{run}")


def shown(value: object) -> str:
    """A value in an error: short, in one line, and whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, or a list that holds itself
        text = f"<a {type(value).__name__}>"
    text = " ".join(text.split("\n"))
    name = getattr(type(value), "name", None) if is_dataclass(value) else None
    if isinstance(name, str) and len(text) > _LONGEST_PART:
        return repr(name)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]} ... {text[-15:]}"


def require(owner: object, field: str, allowed: bool, what: str) -> None:
    """Refuse `owner.field` unless `allowed`; `what` says which values are."""
    if not allowed:
        raise SettingError(f"{type(owner).__name__}.{field} = {shown(getattr(owner, field))}: it must be {what}")


def require_different(owner: object, field: str, names: Sequence[str] | None) -> None:
    """Refuse `owner.field` where a name stands in it twice."""
    require(owner, field, names is None or len(set(names)) == len(names), "names that differ, or nothing")


_MANY = 80  # names, of which an error lists all


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a name that is not in the list, with the nearest one that is."""
    known = sorted(known)
    if not known:
        return SettingError(f"there is no {kind} called '{name}': there is none at all, so leave it out")
    near = [each for each in known if each.lower() == name.lower()]
    near = near or get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    some = known if len(known) <= _MANY else [*get_close_matches(name, known, n=_MANY // 4, cutoff=0.0), "..."]
    listed = f"Known: {', '.join(some)}" + (f" ({len(known)} in all)" if len(some) < len(known) else "")
    return SettingError(f"there is no {kind} called '{name}'.{hint} {listed}")


def names_field(error: Exception, fields: Container[str]) -> bool:
    """Whether an error is about one of these fields, or about a field of the part that one of them holds."""
    own = _OWN.match(str(error))
    return own is not None and (own[1] in fields or own[2] in fields)


def renamed(error: Exception, where: str, fields: Container[str]) -> SettingError:
    """An error of a part that knows its own name alone, with where the user wrote the part and its `fields`.

    `IID.clients = 0` becomes `data.partition.clients = 0`, where that is where it was written.
    """
    said = str(error)
    if isinstance(error, SettingError) and said.startswith((f"{where}.", f"{where}:", f"{where} ")):
        return error
    own = _OWN.match(said)
    if own is None or not names_field(error, fields):
        return SettingError(f"{where}: {said}")
    return SettingError(f"{where}.{said if own[1] in fields else said[own.start(2) :]}")
