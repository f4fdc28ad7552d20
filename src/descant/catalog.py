"""What can be named in a settings file, and how a name with its settings becomes an object.

A spec is a name, or a mapping with a `name` and the fields to set: {"name": "ditto", "lam": 0.1}. Instead of a
name of this package, `some.module:Name` takes whatever lies at that import path.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any, Union, get_args, get_origin, get_type_hints

from descant.aggregators import AGGREGATORS, Aggregator
from descant.codecs import CODECS
from descant.coupling import PENALTIES, PROJECTIONS, Penalty, Projection
from descant.data import PARTITIONS, Partition
from descant.datasets import DATASETS
from descant.errors import SettingError, unknown
from descant.methods import METHODS, SCHEDULES, ByRound, Method
from descant.models import MODELS

Spec = str | Mapping[str, Any]

CATALOG: dict[str, Mapping[str, Callable[..., Any]]] = {
    "methods": METHODS,
    "aggregators": AGGREGATORS,
    "codecs": CODECS,
    "projections": PROJECTIONS,
    "penalties": PENALTIES,
    "schedules": SCHEDULES,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "models": MODELS,
}
_NESTED: dict[type, str] = {
    Method: "methods",
    Projection: "projections",
    Penalty: "penalties",
    Aggregator: "aggregators",
    ByRound: "schedules",
    Partition: "partitions",
}

_imports: ContextVar[bool] = ContextVar("imports", default=True)


@contextmanager
def importing(allowed: bool) -> Iterator[None]:
    """Whether import paths may be followed: not those that a folder of somebody else's names.

    A method (or another part) whose class this process has already is no stranger's code, and always allowed.
    """
    token = _imports.set(allowed)
    try:
        yield
    finally:
        _imports.reset(token)


def build(kind: str, spec: Spec, *leading: Any) -> Any:
    """The object that a spec names; `leading` arguments come before its settings (a model's data)."""
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    singular = _singular(kind)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise SettingError(f"a {singular} needs a name, as in {{name: {next(iter(CATALOG[kind]))}}}; got {spec!r}")
    return _make(_find(kind, name), name, f"{singular} '{name}'", settings, *leading)


def _make(make: Callable[..., Any], where: str, what: str, settings: Mapping[str, Any], *leading: Any) -> Any:
    """What `make` makes of settings, once they are known to be right."""
    known = _settable(make, skip=len(leading))
    for field in settings:
        if field not in known:
            raise unknown(f"setting of {what}", field, known)
    values = {field: _value(f"{where}.{field}", known[field], value) for field, value in settings.items()}
    missing = [p.name for p in _parameters(make)[len(leading) :] if p.default is p.empty and p.name not in values]
    if missing:
        raise SettingError(f"{what} needs a value for {', '.join(missing)}")
    return make(*leading, **values)


def describe(thing: object) -> dict[str, Any]:
    """The spec of a method, an aggregator or a projection, with every field."""
    cls = type(thing)
    name = getattr(cls, "name", cls.__name__)
    if not any(known is cls for catalog in CATALOG.values() for known in catalog.values()):
        name = f"{cls.__module__}:{cls.__qualname__}"
    assert is_dataclass(thing)
    return {"name": name} | _fields(thing)


def _fields(thing: Any) -> dict[str, Any]:
    return {field.name: _described(getattr(thing, field.name)) for field in fields(thing) if field.init}


def _described(value: Any) -> Any:
    if isinstance(value, tuple(_NESTED)):
        return describe(value)
    if isinstance(value, tuple):
        return tuple(map(_described, value))
    return _fields(value) if is_dataclass(value) else value


def entries(kind: str) -> list[dict[str, Any]]:
    """Everything of a kind: `name`, `summary`, `paper` and `fields`, for people and programs."""
    return [_entry(name, make, skip=1 if kind == "models" else 0) for name, make in CATALOG[kind].items()]


def _entry(name: str, make: Callable[..., Any], skip: int) -> dict[str, Any]:
    shown = [
        {
            "name": p.name,
            "type": p.annotation
            if isinstance(p.annotation, str)
            else getattr(p.annotation, "__name__", str(p.annotation)),
            "default": None if p.default is p.empty else _shown(_default(make, p)),
            "required": p.default is p.empty,
        }
        for p in _parameters(make)[skip:]
    ]
    summary = (inspect.getdoc(make) or "").split("\n")[0]
    return {"name": name, "summary": summary, "paper": getattr(make, "paper", None), "fields": shown}


def _default(make: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The default of a parameter, also where a dataclass makes it anew for every object."""
    for field in fields(make) if is_dataclass(make) else ():
        if field.name == parameter.name and field.default_factory is not MISSING:
            return field.default_factory()
    return parameter.default


def _shown(default: Any) -> Any:
    if isinstance(default, tuple(_NESTED)):  # its name alone, where all its fields have their defaults
        plain = all(getattr(default, p.name) == _default(type(default), p) for p in _parameters(type(default)))
        return describe(default)["name"] if plain else describe(default)
    if isinstance(default, bool | int | float | str | list | type(None)):
        return default
    if isinstance(default, tuple):
        return list(default)
    return str(default)


def _find(kind: str, name: str) -> Callable[..., Any]:
    if ":" not in name:
        if name not in CATALOG[kind]:
            raise unknown(_singular(kind), name, CATALOG[kind])
        return CATALOG[kind][name]
    module, _, attribute = name.partition(":")
    if not _imports.get() and not _is_part(getattr(sys.modules.get(module), attribute, None)):
        raise SettingError(
            f"the {_singular(kind)} '{name}' is an import path, and following it runs code: "
            "if you trust who made the folder, allow it (--allow-imports, or allow_imports=True)"
        )
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"'{name}' cannot be imported: {error}") from error
    return found


def _is_part(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, tuple(_NESTED))


def _singular(kind: str) -> str:
    return f"{kind.removesuffix('ies')}y" if kind.endswith("ies") else kind.removesuffix("s")


def _parameters(make: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(make).parameters.values())


def _settable(make: Callable[..., Any], skip: int) -> dict[str, Any]:
    """The settings that `make` takes, with their types."""
    of = make.__init__ if isinstance(make, type) and not is_dataclass(make) else make  # type: ignore[misc]
    hints = get_type_hints(of)
    return {p.name: hints.get(p.name, Any) for p in _parameters(make)[skip:]}


def _value(where: str, kind: Any, value: Any) -> Any:
    """A setting as the type that was asked for, or an error that names it."""
    from pydantic import TypeAdapter, ValidationError

    if isinstance(kind, type) and kind in _NESTED:
        return build(_NESTED[kind], value)
    if get_origin(kind) is tuple and is_dataclass(each := get_args(kind)[0]) and isinstance(value, list | tuple):
        return tuple(_value(f"{where}[{i}]", each, one) for i, one in enumerate(value))
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _make(kind, where, where, value)  # type: ignore[arg-type]
    if nested := [k for k in get_args(kind) if k in _NESTED]:  # a spec, or something else
        others = tuple(k for k in get_args(kind) if k not in nested)
        if isinstance(value, Mapping) or (isinstance(value, str) and others == (type(None),)):
            return build(_NESTED[nested[0]], value)
        kind = Union[others]  # noqa: UP007
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise SettingError(f"{where} = {value!r}: {problem[0].lower()}{problem[1:]}") from None
