"""Errors that a user can act on: each names what was wrong and says what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SettingError(ValueError):
    """A setting that cannot be used, with its name, its value and what is allowed."""


class ResumeError(SettingError):
    """A run that cannot be gone on with, or not with what was handed in."""


class DamagedError(ValueError):
    """A file of a run that is not what was written: damaged, missing, changed by hand, or of another run."""


class LeftOutWarning(UserWarning):
    """A damaged run among others, which are reported without it."""


class TaskError(ValueError):
    """A model, loss or metric that cannot be trained for many clients at once, or at all."""


class CodecError(ValueError):
    """A message that cannot be encoded, or bytes that cannot be decoded."""


class NoModelError(LookupError):
    """A model that a run did not keep."""


class NoSharedModelError(LookupError):
    """The method has no shared (global) model."""


def require(owner: object, field: str, allowed: bool, what: str) -> None:
    """Refuse `owner.field` unless `allowed`; `what` says which values are."""
    if not allowed:
        value = getattr(owner, field)
        raise SettingError(f"{type(owner).__name__}.{field} = {value!r}: it must be {what}")


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a name that is not in the list, with the nearest one that is."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return SettingError(f"there is no {kind} called '{name}'.{hint} Known: {', '.join(known)}")
