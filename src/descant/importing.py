"""Import paths, `some.module:Name`, in the place of a name of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from typing import Any, cast

from descant.errors import SettingError

_UNLIKE = ("non-frozen dataclass from a frozen one", "follows default argument")  # as Python says it
_allowed: ContextVar[bool] = ContextVar("imports", default=True)


@contextmanager
def importing(allowed: bool) -> Iterator[None]:
    """Whether import paths may be followed: not those that a folder of somebody else's names.

    A part whose class this process has already is no stranger's code, and always allowed.
    """
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def follow(path: str, what: str, bases: tuple[type, ...], fits: Callable[[Any], bool] = callable) -> Any:
    """What lies at an import path. `what` is what it is to be, of a class derived from one of `bases`.

    For a name that the module does not have, one is suggested of what `fits`.
    """
    module, _, attribute = path.partition(":")
    here = getattr(sys.modules.get(module), attribute, None)
    if not _allowed.get() and not (isinstance(here, type) and issubclass(here, bases)):
        raise SettingError(
            f"the {what} '{path}' is an import path, and following it runs code: "
            "if you trust who made the folder, allow it (--allow-imports, or allow_imports=True)"
        )
    try:
        found = cast(Any, import_module(module))
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        remedy = _where(module) if getattr(error, "name", None) == module.split(".")[0] else _undone(error)
        if module.endswith(".py"):
            remedy = f"; a module has no ending: write '{module.removesuffix('.py')}:{attribute}'"
        raise SettingError(f"'{path}' cannot be imported: {kind}{error}{remedy}") from error
    try:
        return reduce(getattr, attribute.split("."), found)
    except (Exception, SystemExit) as error:  # a module may look for its attributes itself
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        known = [name for name, held in getattr(found, "__dict__", {}).items() if fits(held)]
        near = get_close_matches(attribute, known, n=1, cutoff=0.5)
        hint = f"did you mean '{module}:{near[0]}'?" if near else "name a class or a function, as in module:Name"
        raise SettingError(f"'{path}' cannot be imported: {kind}{error}; {hint}") from error


def _undone(error: BaseException) -> str:
    """What to do about a class whose decorator does not go with the classes above it."""
    if isinstance(error, TypeError) and any(said in str(error) for said in _UNLIKE):
        return ": write @dataclass(frozen=True, kw_only=True) above it"
    return ""


def _where(module: str) -> str:
    """What to do about a module that Python does not find."""
    top = module.split(".")[0]
    return f": put {top}.py into the folder that you call from, or install the package that has it"
