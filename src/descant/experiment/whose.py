"""Whose code a module is: the user's own, of Python's standard library, or of a package that is installed."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

VERSIONED = ("torch", "descant", "builtins")
_STANDARD = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}


def is_users(module: str | None, beside: str) -> bool:
    """Whether code of a module is the user's own; of an installed one that is `beside`, it is."""
    if not isinstance(module, str) or not module or module.split(".")[0] in VERSIONED:
        return False
    place = _place(sys.modules.get(module))
    return place == "own" or (module == beside and place != "standard")


def _place(module: ModuleType | None) -> str:
    if module is None:
        return "gone"
    held = vars(module)  # a module may answer for what it does not hold
    folders = [str(each) for each in held.get("__path__", ())]
    file = held.get("__file__") or (folders[0] if folders else None)
    if file is not None:
        return _place_of(str(file))
    # A notebook has no file, and neither have modules that are compiled into Python.
    origin = getattr(held.get("__spec__"), "origin", None)
    return "standard" if origin in ("built-in", "frozen") else "own"


@cache
def _place_of(file: str) -> str:
    paths = (Path(file), Path(file).resolve())
    if any(not _INSTALLED.isdisjoint(path.parts) for path in paths):
        return "installed"
    return "standard" if any(path.is_relative_to(lib) for path in paths for lib in _STANDARD) else "own"
