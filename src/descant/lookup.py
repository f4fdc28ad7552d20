"""What a name or an import path in a spec stands for, and whether it is a complete part of its kind."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from torch import nn

from descant.errors import SettingError, unknown
from descant.hooks import check_declared, check_hooks, check_names
from descant.importing import follow
from descant.kinds import BASES, CATALOG, NESTED, SETS, path_of, singular
from descant.methods import Method
from descant.saying import check_said

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")  # `some.module.Name`
_SAID = ("name", "trains", "has_shared", "personalizes")  # class variables without a default, of methods


def find(kind: str, name: str) -> Callable[..., Any]:
    """What makes the thing of a kind that is called so."""
    if ":" not in name:
        if _DOTTED.fullmatch(name):
            module, _, last = name.rpartition(".")
            remedy = f"an import path has a colon before the last name, as in '{module}:{last}'"
            raise SettingError(f"there is no {singular(kind)} called '{name}': {remedy}")
        if name not in CATALOG[kind]:
            raise unknown(singular(kind), name, [*CATALOG[kind], *SETS.get(kind, ())])
        return CATALOG[kind][name]
    bases = (*NESTED, nn.Module) if kind == "models" else tuple(NESTED)
    found = follow(name, singular(kind), bases, partial(_fits, kind))
    _refuse_other_kinds(kind, name, found)
    make: Callable[..., Any] = found
    return make


def _fits(kind: str, found: Any) -> bool:
    """Whether something that lies in a module could be asked for as one of a kind."""
    try:
        _refuse_other_kinds(kind, "", found)
    except SettingError:
        return False
    return True


def _refuse_other_kinds(kind: str, name: str, found: Any) -> None:
    """Refuse what lies at an import path and is nothing of the kind."""
    base, what = BASES.get(kind), singular(kind)
    if base is None:
        if not callable(found):
            raise SettingError(f"'{name}' is no {what}: it must be a function that makes one")
        return
    if not isinstance(found, type) or not issubclass(found, base):
        raise SettingError(f"'{name}' is no {what}: it must be a class derived from {path_of(base)}")
    if inspect.isabstract(found):
        left = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise SettingError(f"'{name}' is no complete {what}: it has no {left} yet")
    refuse_incomplete(kind, f"'{name}'", found)


def refuse_incomplete(kind: str, called: str, found: Any) -> None:
    """Refuse a class, or an object of one, that does not say what every part of its kind says of itself, or has a
    hook that cannot be called as those of its kind are."""
    said = _SAID if kind == "methods" else _SAID[:1]
    if unsaid := [
        each for each in said if each in inspect.get_annotations(BASES[kind]) and not hasattr(found, each)
    ]:
        raise SettingError(f"{called} is no complete {singular(kind)}: set {', '.join(unsaid)} in its class")
    cls: Any = found if isinstance(found, type) else type(found)
    check_hooks(cls, BASES[kind])
    check_declared(called, cls, BASES[kind])
    check_names(cls, BASES[kind])
    if kind == "methods" and found.has_shared is True and cls.shared is Method.shared:
        raise SettingError(f"{called} is no complete method: has_shared is true, and there is no hook shared")
    for field in fields(found) if is_dataclass(found) and not isinstance(found, type) else ():
        held = getattr(found, field.name)  # a part of its own, such as a solver
        for base in (base for base in NESTED if isinstance(held, base)):
            refuse_incomplete(NESTED[base], f"{called}.{field.name}", held)
    check_said(cls, BASES[kind])  # what objects say besides, by properties, once they are to be run
