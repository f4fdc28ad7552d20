"""What is said of a hook that does not do what it must: its name, what it did, and what to do.

The hooks of a class are the functions and properties of the class that it must derive from, as of `Method`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

from descant.errors import SettingError, shown
from descant.fields import of_descant

_NEAR = 0.75  # how alike the names of two functions are that may be the same one
_DECORATOR = "@dataclass(frozen=True, kw_only=True)"


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


@lru_cache(maxsize=256)  # a grid of many runs asks of the same few classes again and again
def check_hooks(cls: type, base: type) -> None:
    """Refuse a class one of whose hooks cannot be called as that of the class `base` is: nothing is called."""
    for name, wanted in vars(base).items():
        own = inspect.getattr_static(cls, name)
        if own is wanted or name.startswith("_"):
            continue
        called = f"the hook {cls.__name__}.{name}"
        if isinstance(wanted, property) and isinstance(own, FunctionType | staticmethod | classmethod):
            raise SettingError(f"{called} is a function, and is read as a property: write @property above it")
        if not isinstance(wanted, FunctionType):
            continue
        takes = inspect.signature(wanted)
        written = f"write it as {name}({', '.join(takes.parameters)})"
        if isinstance(own, property) or not (callable(own) or hasattr(own, "__get__")):
            what = "a property" if isinstance(own, property) else f"a {type(own).__name__}"
            raise SettingError(f"{called} is {what}, and is called as a function: {written}")
        if isinstance(own, FunctionType | staticmethod | classmethod):
            _check_call(called, cls, own, takes, written)


@lru_cache(maxsize=256)
def check_names(cls: type, base: type) -> None:
    """Refuse a function of a user's class that nothing calls, and whose name is nearly that of a hook, or that of
    local work which another class has, and not the one that it derives from."""
    own = [each for each in cls.__mro__ if not of_descant(each)]
    for each in own:
        above = cls.__mro__[cls.__mro__.index(each) + 1 :] if issubclass(each, base) else ()
        hooks = {_letters(name): name for up in reversed(above) for name in _functions(up)}
        for name, function in _functions(each).items():
            if any(name in vars(up) or name in inspect.get_annotations(up) for up in above):
                continue
            near = get_close_matches(_letters(name), hooks, n=1, cutoff=_NEAR)
            # step_a and personalized say more than the hook's name, and slips do not
            more = bool(near) and near[0] != _letters(name) and near[0] in _letters(name)
            others = [
                code for some in own for code in _functions(some, public=False).values() if code is not function
            ]
            if any(name in _mentioned(code.__code__) for code in others):
                continue  # what the class calls itself, or hands to `local.run`, is a function of its own
            remedy = "Rename it, or begin its name with an underscore"
            said = f"class {each.__name__} defines {name}, and does not call it"
            if near and not more:
                raise SettingError(f"{said}: is it meant to be the hook {hooks[near[0]]}? {remedy}")
            beside = not _works(function) or name in _mentioned_beside(each)
            if told := None if beside else _elsewhere(name, base, above):
                raise SettingError(f"{said}: {told}. {remedy}")


def _elsewhere(name: str, base: type, above: tuple[type, ...]) -> str | None:
    """Which class of descant has a hook of that name, and which ones that has from which a user's class derives."""
    parent = next((up for up in above if of_descant(up) and issubclass(up, base) and up is not base), None)
    if parent is None or not (owners := _owners(name, base)):
        return None
    its = [hook for hook, held in vars(parent).items() if isinstance(held, FunctionType) and hook[0] != "_"]
    return f"{owners[0]} has such a hook, and {parent.__name__} has {', '.join(its)}"


def _owners(name: str, base: type) -> list[str]:
    """The classes of descant that derive from a class and do local work by a function of that name."""
    below: list[type] = base.__subclasses__()
    mine = [
        each.__name__
        for each in below
        if of_descant(each) and (function := _functions(each).get(name)) is not None and _works(function)
    ]
    return [*mine, *(owner for each in below for owner in _owners(name, each))]


def _works(function: FunctionType) -> bool:
    """Whether a function may do local work: it takes a gradient or the clients' view, or whatever comes."""
    taken = inspect.signature(function).parameters.values()
    return any(each.name in ("grad", "local") or each.kind is each.VAR_POSITIONAL for each in taken)


def _mentioned_beside(cls: type) -> set[str]:
    """The names that stand in the functions of a class's file, outside of the class."""
    beside = vars(sys.modules.get(cls.__module__, object)).values()
    mine = [each for each in beside if getattr(each, "__module__", None) == cls.__module__ and each is not cls]
    classes = [code for each in mine if isinstance(each, type) for code in _functions(each, public=False).values()]
    functions = [each for each in mine if isinstance(each, FunctionType)]
    return {name for each in [*functions, *classes] for name in _mentioned(each.__code__)}


def check_declared(called: str, cls: Any, base: type) -> None:
    """Refuse a class that declares or sets what looks like a field, and is none of it."""
    known = {field.name: field for field in fields(cls) if field.init}
    below: set[str] = set()  # what is declared further down, and holds there
    for each in (each for each in cls.__mro__ if issubclass(each, base) and not of_descant(each)):
        declared, decorated = inspect.get_annotations(each), "__dataclass_fields__" in vars(each)
        for name in (known.keys() & vars(each).keys()) - declared.keys() - below:
            if not _describes(value := vars(each)[name]):
                kind, kinds = _named(type(value)), _named(known[name].type)
                written = f"{name}: {kind if kind in kinds.split(' | ') else kinds} = {shown(value)}"
                also = "" if decorated else f", and {_DECORATOR} above the class"
                said = f"class {each.__name__} sets {name}, which has no type there and so is no field"
                raise SettingError(f"{said}: write {written}{also}")
        for name in sorted(declared.keys() & known.keys()):
            if (owner := _hidden(name, each, base)) is not None:
                said = f"class {each.__name__} has a field {name}, which hides what {owner} computes by that name"
                raise SettingError(f"{said}: give the field another name")
        left = [
            name
            for name, kind in declared.items()
            if not decorated
            and name not in below | inspect.get_annotations(base).keys()
            and (name not in known or name in vars(each))  # without a value it is a type for a type checker
            and "ClassVar" not in str(kind)
            and not name.startswith("_")
            and not _describes(inspect.getattr_static(cls, name, None))  # it is given there
        ]
        if left:
            remedy = f"write {_DECORATOR} above the class"
            raise SettingError(f"{called} declares {', '.join(left)}, which the class takes for no field: {remedy}")
        below |= declared.keys() if decorated else set()


def _hidden(name: str, cls: type, base: type) -> str | None:
    """Which class of descant, above a user's, computes something by the name of a field.

    What a class says of itself by a property of `base` may be said by a field.
    """
    above = (up for up in cls.__mro__[1:] if name in vars(up))
    owner = next((up for up in above if of_descant(up)), None)
    if owner is None or name in getattr(owner, "__dataclass_fields__", {}):
        return None
    if not _describes(held := vars(owner)[name]):
        return None
    said = isinstance(held, property) and isinstance(vars(base).get(name), property)
    return None if said else owner.__name__


def untyped(make: Any, name: str) -> str:
    """What an error adds about a setting that is none, where the class of a user has it without a type."""
    each = next((each for each in getattr(make, "__mro__", ()) if name in vars(each)), None)
    if each is None or of_descant(each) or name in inspect.get_annotations(each) or _describes(vars(each)[name]):
        return ""
    value = vars(each)[name]
    kind = "float | None" if value is None else _named(type(value))
    remedy = f"write {name}: {kind} = {shown(value)}"
    return f"; class {each.__name__} has {name} without a type, and so it is no field: {remedy}"


def _functions(cls: type, public: bool = True) -> dict[str, FunctionType]:
    """The functions that a class defines itself, also those behind its properties."""
    found = {}
    for name, held in vars(cls).items():
        for inner in ("__func__", "fget", "func"):  # of a class or static method, a property, a cached one
            held = getattr(held, inner, held)
        held = inspect.unwrap(held) if isinstance(held, FunctionType) else held
        if isinstance(held, FunctionType) and not (public and name.startswith("_")):
            found[name] = held
    return found


def _mentioned(code: CodeType) -> set[str]:
    """The names that stand in a function, and in those inside of it."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*map(_mentioned, inner))


def _letters(name: str) -> str:
    return name.lower().replace("_", "")


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _describes(value: Any) -> bool:
    """Whether what a class holds gives an attribute of its objects, as a function or a property does."""
    return hasattr(type(value), "__get__")


def _check_call(called: str, cls: type, own: Any, wanted: inspect.Signature, written: str) -> None:
    """Refuse a hook that does not take what it is called with: what has no default always, the others maybe."""
    try:
        # As an object of the class has it; what it wraps may take something else.
        takes = inspect.signature(own.__get__(object(), cls), follow_wrapped=False)
    except ValueError:
        if not isinstance(own, FunctionType):  # what it stands for is not written in Python
            return
        takes = inspect.Signature()  # it does not even take self
    asked = list(wanted.parameters.values())[1:]  # without self
    for some in ([p for p in asked if p.default is p.empty], asked):
        by_place = [p.name for p in some if p.kind is not p.KEYWORD_ONLY]
        by_name = {p.name: p.name for p in some if p.kind is p.KEYWORD_ONLY}
        try:
            takes.bind(*by_place, **by_name)
        except TypeError as error:
            names = ", ".join([*by_place, *by_name])
            own_names = ", ".join(takes.parameters)
            raise SettingError(f"{called} takes ({own_names}) and is called with ({names}): {written}") from error
