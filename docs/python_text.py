"""Functions and classes as Markdown: signature, docstring, and what a class offers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from markdown_text import code, heading, prose, table

import descant

_PACKAGES = ("methods", "aggregators", "attacks", "codecs", "coupling", "data", "models", "task")
_WIDE = 90  # characters from which on a signature is written one parameter a line


class _Bare:
    """An annotation that is shown as it was written, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def path_of(made: Any) -> str:
    """The name that a user writes: from the package that exports it."""
    for package in _PACKAGES:
        if getattr(getattr(descant, package), made.__name__, None) is made:
            return code(f"descant.{package}.{made.__name__}")
    return code(
        f"descant.{made.__qualname__}" if hasattr(descant, made.__qualname__.split(".")[0]) else made.__name__
    )


def thing(name: str, value: Any) -> str:
    """A function, or a class with its public methods and properties."""
    parts = [heading(2, name), _signature(f"descant.{name}", value), _told(value)]
    if isinstance(value, type):
        parts += [_member(name, *member) for member in _public(value)]
    return "\n\n".join(filter(None, parts))


def arguments(function: Callable[..., Any]) -> dict[str, str]:
    """What the section 'Args:' of a docstring says of every argument."""
    told: dict[str, str] = {}
    for line in (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].split("\n"):
        name, colon, text = line.strip().partition(": ")
        if colon and len(line) - len(line.lstrip()) == 4:
            told[name] = text
        elif told and line.strip():
            told[list(told)[-1]] += f" {line.strip()}"
    return told


def called(name: str, member: Any) -> str:
    """How a function of a class is called, or a property read."""
    if isinstance(member, property):
        return name
    return f"{name}({', '.join(list(inspect.signature(member).parameters)[1:])})"


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(cls).items():
        kinds = (classmethod, property, cached_property)
        if (
            not name.startswith("_")
            and (inspect.isfunction(member) or isinstance(member, kinds))
            and member.__doc__
        ):
            yield name, member


def _member(owner: str, name: str, member: Any) -> str:
    signature = ""
    if isinstance(member, classmethod):
        signature, member = _signature(f"descant.{owner}.{name}", member.__func__, skip=1), member.__func__
    elif inspect.isfunction(member):
        signature = _signature(f"{owner}.{name}", member, skip=1)
    return "\n\n".join(filter(None, [heading(3, f"{owner}.{name}"), signature, _told(member)]))


def _told(value: Any) -> str:
    text = (inspect.getdoc(value) or "").partition("\nArgs:\n")[0]
    rows = [[code(name), prose(told)] for name, told in arguments(value).items()]
    return prose(text) + ("\n\n" + table(["argument", "meaning"], rows) if rows else "")


def _signature(name: str, value: Callable[..., Any], skip: int = 0) -> str:
    whole = inspect.signature(value)
    parameters = list(whole.parameters.values())[skip:]
    shown = [p.replace(annotation=_bare(p.annotation)) for p in parameters]
    signature = whole.replace(parameters=shown, return_annotation=_bare(whole.return_annotation))
    text = name + str(signature)
    if len(text) > _WIDE:
        lines = _lines(shown)
        result = "" if signature.return_annotation is whole.empty else f" -> {signature.return_annotation}"
        text = f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){result}"
    return f"```python\n{text}\n```"


def _lines(parameters: list[inspect.Parameter]) -> list[str]:
    lines, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
            starred = True
        lines.append(str(parameter))
    return lines


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation
