"""Settings files: YAML in which nothing is said twice."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from descant.errors import SettingError, shown

_LONGEST = 200  # characters of an override in an error


class _Loader(yaml.SafeLoader):
    """YAML whose keys are text and stand once, and in which 1e-3 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag == "tag:yaml.org,2002:bool" and str(key.value).lower() not in ("true", "false"):
                key.tag = "tag:yaml.org,2002:str"  # `on` is a field, and in YAML 1.1 another word for true
            line = f"line {key.start_mark.line + 1}"
            if key.tag != "tag:yaml.org,2002:str":
                text = getattr(key, "value", None)
                said = f"the key {text}" if isinstance(text, str) else "a key"
                remedy = f" (a label is: '{text}')" if isinstance(text, str) else ""
                raise SettingError(f"{line}: {said} is not text; put it in quotes if it is meant as a name{remedy}")
            if key.value in seen:
                raise SettingError(f"{line}: '{key.value}' stands twice, and only one of them could hold")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# YAML 1.1, which the library reads, wants a dot in a number with an exponent.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_settings(path: Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """The settings in a YAML file, with overrides such as 'method.lam=0.1'."""
    try:
        values = _load(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {_why(path, error)}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except _JunkError as error:
        raise SettingError(f"{path} is not valid YAML: {error}") from error
    except SettingError as error:
        raise SettingError(f"{path}, {error}") from None
    if not isinstance(values, dict):
        raise SettingError(f"{path} must hold settings, as in 'rounds: 50'")
    if _holds_itself(values):
        raise SettingError(f"{path}: an alias (*name) stands inside what it is an alias of: write it out")
    for override in overrides or []:
        _override(values, override)
    return values


def _why(path: Path, error: OSError) -> str:
    """Why a file cannot be read, and what to do instead."""
    if isinstance(error, FileNotFoundError):
        return f"there is no such file{'' if path.is_absolute() else f' in {Path.cwd()}'}; give a file of settings"
    if path.is_dir():
        runs = f"an unfinished run goes on with descant resume {path}, and charts are from descant report {path}"
        return f"it is a folder; give a file of settings ({runs})"
    return str(error.strerror)


class _JunkError(Exception):
    """Text that is no YAML."""


def _load(text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise _JunkError(_problem(error)) from error
    except SettingError:
        raise
    except RecursionError as error:
        raise _JunkError("it is nested too deeply") from error
    except Exception as error:  # what a tag asks for, as in `!!int x` or the date 2020-13-45
        raise _JunkError(f"{type(error).__name__}: {error}") from error


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong, and where, in one line."""
    said = " ".join(str(getattr(error, "problem", None) or error).split())
    mark = getattr(error, "problem_mark", None)
    return said if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {said}"


def _holds_itself(value: Any, above: tuple[int, ...] = ()) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return id(value) in above or any(_holds_itself(one, (*above, id(value))) for one in inside)


def _override(values: dict[str, Any], override: str) -> None:
    where, equals, text = override.partition("=")
    if len(override) > _LONGEST:
        override = f"{override[:_LONGEST]} ..."
    *parents, last = where.strip().split(".")
    if not equals or not all((*parents, last)):
        raise SettingError(f"--set {override}: write it as field=value, as in method.lam=0.1")
    for parent in parents:
        inner = values.get(parent)
        inner = values[parent] = {} if inner is None else {"name": inner} if isinstance(inner, str) else inner
        if not isinstance(inner, dict):
            raise SettingError(f"--set {override}: '{parent}' is {shown(inner)}, which has no fields")
        values = inner
    try:
        values[last] = _load(text)
    except _JunkError as error:
        raise SettingError(f"--set {override}: its value is not valid YAML ({error})") from None
    except SettingError as error:
        raise SettingError(f"--set {override}: {error}") from None
