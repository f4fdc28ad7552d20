"""What can be named in a settings file, and how a name with its settings becomes an object.

A spec is a name, or a mapping with a `name` and the fields to set: {"name": "ditto", "lam": 0.1}. Instead of a
name of this package, `some.module:Name` takes whatever lies at that import path. Errors name the `path` at which a
spec was written: method.lam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin

from descant.data import DataError
from descant.errors import SettingError, TaskError, names_field, renamed, shown, unknown
from descant.fields import in_range
from descant.hooks import untyped
from descant.kinds import BASES, CATALOG, MADE, NESTED, SETS, a_or_an, singular
from descant.lookup import find
from descant.signatures import default_of, parameters_of, settable
from descant.values import plain, typed

Spec = str | Mapping[str, Any]
_NAMES = 5  # that an error lists


def build(kind: str, spec: Spec, *leading: Any, path: str | None = None) -> Any:
    """The object that a spec names; `leading` arguments come before its settings (a model's data)."""
    name, make, settings = _opened(kind, spec, path)
    made = _make(make, path or name, f"{singular(kind)} '{name}'", settings, *leading)
    if not isinstance(made, wanted := BASES.get(kind) or MADE[kind]):
        made_of = f"it made a {type(made).__name__}, and no {wanted.__name__}"
        raise SettingError(f"{path or kind}: '{name}' is no {singular(kind)}: {made_of}")
    return made


def build_all(kind: str, spec: Spec, *, path: str) -> tuple[Any, ...]:
    """The objects that a spec names: one, or those of a preset, which takes no fields."""
    named = _named(spec)
    preset = SETS.get(kind, {}).get(str(named.pop("name", None)))
    if preset is None:
        return (build(kind, spec, path=path),)
    for field in named:
        listed = ", ".join(_name(part) for part in preset.attacks)
        raise SettingError(f"{path}.{field}: a preset has no fields; to choose them, list its {kind}: {listed}")
    return preset.attacks


def check_spec(kind: str, spec: Spec, *, path: str, leading: int = 0) -> None:
    """Refuse a spec from which nothing can be built, without building anything."""
    _, make, settings = _opened(kind, spec, path)
    _values(make, path, f"{singular(kind)} '{_named(spec)['name']}'", settings, leading)


def taken_by(kind: str, spec: Spec, *fields: str) -> bool:
    """Whether what a spec names has settings of these names; not where there is no such thing."""
    try:
        _, make, _ = _opened(kind, spec, None)
    except SettingError:
        return False
    return set(fields) <= {p.name for p in parameters_of(make)}


def fill(make: Callable[..., Any], values: Mapping[str, Any], *, path: str) -> Any:
    """What a dataclass makes of values by field, once they are known to be right."""
    return _make(make, path, path, values)


def brief_spec(kind: str, spec: Spec, *, leading: int = 0) -> dict[str, Any]:
    """A spec without the fields that say what they say by default."""
    name, make, settings = _opened(kind, spec, None)
    values = _values(make, name, name, settings, leading)
    default = {p.name: default_of(make, p) for p in parameters_of(make)}
    return {"name": name} | {f: _brief(v) for f, v in values.items() if v != default[f]}


def describe(thing: object) -> dict[str, Any]:
    """The spec of a method, an aggregator or a projection, with every field."""
    return {"name": _name(thing)} | _fields(thing)


def brief(thing: object) -> dict[str, Any]:
    """The spec of an object without the fields that have their defaults, here and inside."""
    return {"name": _name(thing)} | _brief_fields(thing)


def _opened(kind: str, spec: Spec, path: str | None) -> tuple[str, Callable[..., Any], dict[str, Any]]:
    """The name in a spec, what it stands for, and the settings beside it."""
    settings = _named(spec)
    name = settings.pop("name", None)
    where = f"{path}: " if path else ""
    if not isinstance(name, str):
        example = next(iter(CATALOG[kind]))
        raise SettingError(
            f"{where}{a_or_an(singular(kind))} needs a name, as in {{name: {example}}}; got {shown(spec)}"
        )
    try:
        return name, find(kind, name), settings
    except SettingError as error:
        raise SettingError(f"{where}{error}") from error.__cause__


def _named(spec: Spec) -> dict[str, Any]:
    return {"name": spec} if isinstance(spec, str) else dict(spec)


def _make(make: Callable[..., Any], where: str, what: str, settings: Mapping[str, Any], *leading: Any) -> Any:
    """What `make` makes of settings, once they are known to be right."""
    values = _values(make, where, what, settings, len(leading))
    try:
        return make(*leading, **values)
    except SettingError as error:  # of the class, which knows its own name alone
        told = _as_written(error, settings, values)
        raise renamed(told, where, settable(make, skip=len(leading))) from None
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from error
    except DataError as error:
        if names_field(error, values):  # and not a client or a file
            raise DataError(str(renamed(error, where, values))) from error
        raise
    except Exception as error:
        if getattr(error, "filename", None) is not None:  # a file that is not there, or cannot be read
            raise
        said = f"{type(error).__name__}: {error}".split("\n")[0]
        given = "; it is called with the data first, as in def net(data, hidden=32)" if leading else ""
        raise SettingError(f"{where}: {what} cannot be made of {shown(dict(settings))} ({said}){given}") from error


def _as_written(error: SettingError, settings: Mapping[str, Any], values: Mapping[str, Any]) -> SettingError:
    """An error that shows a list of the settings as a list, where the class saw a tuple among its `values`."""
    said = str(error)
    for field, value in settings.items():
        if isinstance(value, list) and (seen := f"{field} = {shown(values[field])}: ") in said:
            return SettingError(said.replace(seen, f"{field} = {shown(value)}: ", 1))
    return error


def _values(
    make: Callable[..., Any], where: str, what: str, settings: Mapping[str, Any], leading: int
) -> dict[str, Any]:
    """The settings for `make` in the types that it asks for."""
    try:
        known = settable(make, skip=leading)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from error
    for field in settings:
        if field not in known:
            said = f"{unknown(f'setting of {what}', str(field), known)}{untyped(make, str(field))}"
            raise SettingError(f"{where}.{field}: {said}")
    values = {}
    for field, value in settings.items():
        at, kind = f"{where}.{field}", known[field]
        try:
            values[field] = _value(at, kind, value)
        except SettingError as error:
            if not str(error).startswith(f"{at} = "):  # of a part inside
                raise
            raise SettingError(in_range(str(error), (kind, *get_args(kind)), make, field, settings)) from None
    missing = [p.name for p in parameters_of(make)[leading:] if p.default is p.empty and p.name not in values]
    if missing:
        raise SettingError(f"{'' if what == where else f'{where}: '}{what} needs a value for {', '.join(missing)}")
    return values


def _name(thing: object) -> str:
    cls = type(thing)
    if not is_dataclass(thing):
        raise SettingError(f"{cls.__name__} is no dataclass: its fields could not be written down")
    if any(known is cls for catalog in CATALOG.values() for known in catalog.values()):
        return str(getattr(cls, "name", cls.__name__))
    return f"{cls.__module__}:{cls.__qualname__}"


def _fields(thing: Any) -> dict[str, Any]:
    return {field.name: _described(getattr(thing, field.name)) for field in fields(thing) if field.init}


def _described(value: Any) -> Any:
    if isinstance(value, tuple(NESTED)):
        return describe(value)
    if isinstance(value, tuple | list):
        return tuple(map(_described, value))
    return _fields(value) if is_dataclass(value) else plain(value)


def _brief_fields(thing: Any) -> dict[str, Any]:
    default = {p.name: default_of(type(thing), p) for p in parameters_of(type(thing))}
    values = {name: getattr(thing, name) for name in default}
    return {name: _brief(value) for name, value in values.items() if value != default[name]}


def _brief(value: Any) -> Any:
    if isinstance(value, tuple(NESTED)):
        return brief(value)
    if isinstance(value, tuple | list):
        return tuple(map(_brief, value))
    return _brief_fields(value) if is_dataclass(value) else plain(value)


def _value(where: str, kind: Any, value: Any) -> Any:
    """A setting as the type that was asked for, or an error that names it."""
    nested = [k for k in (kind, *get_args(kind)) if k in NESTED]
    if nested and isinstance(value, tuple(nested)):  # from Python, where a spec may hold objects
        return value
    if kind in nested:
        return _part(where, kind, value)
    if get_origin(kind) is tuple and is_dataclass(each := get_args(kind)[0]) and isinstance(value, list | tuple):
        return tuple(_value(f"{where}[{i}]", each, one) for i, one in enumerate(value))
    if isinstance(kind, type) and is_dataclass(kind):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return _make(kind, where, where, value)
    if nested:  # a spec, or something else
        others = tuple(k for k in get_args(kind) if k not in nested)
        if isinstance(value, Mapping) or (isinstance(value, str) and others == (type(None),)):
            return _part(where, nested[0], value)
        return typed(where, Union[others], value, also=f"a mapping with the {_names_of(nested[0])}")  # noqa: UP007
    return typed(where, kind, value)


def _part(where: str, base: type, value: Any) -> Any:
    if not isinstance(value, str | Mapping):
        what = f"the {_names_of(base)}, or a mapping with a name and fields"
        raise SettingError(f"{where} = {shown(value)}: it must be {what}")
    return build(NESTED[base], value, path=where)


def _names_of(base: type) -> str:
    """How a part of a kind is named in a file."""
    kind = NESTED[base]
    names = list(CATALOG[kind])
    more = ", ..." if len(names) > _NAMES else ""
    return f"name of {a_or_an(singular(kind))} (`descant list {kind}`: {', '.join(names[:_NAMES])}{more})"
