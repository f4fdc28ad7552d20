"""Reference text from the code itself: catalogues, dataclasses, signatures and docstrings become Markdown.

Nothing is listed by hand, so a method, a data set, a setting or a command that is added appears by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import typer
from markdown_text import anchor, code, distinct, formula, heading, inline, prose, table
from python_text import called, path_of, thing
from typer.main import get_command

import descant
from descant.cli.app import app
from descant.experiment.declaration import Setting, Settings, declared
from descant.experiment.settings import RunSettings
from descant.kinds import CATALOG
from descant.listing import entries, presets
from descant.methods import METHODS, Method, Work
from descant.report.making import report


def methods() -> str:
    """Every method, and then what several of them share."""
    shared = [heading(3, base.__name__) + f"\n\n{prose(inspect.getdoc(base) or '')}" for base in _bases()]
    found = [_method(entry, METHODS[entry["name"]]) for entry in entries("methods")]
    return "\n\n".join([*found, heading(2, "Fields that methods share"), *shared])


def _bases() -> list[type]:
    """The classes that are no methods by themselves, but give several of them fields."""
    known = {Method, *METHODS.values()}
    found = [base for cls in METHODS.values() for base in cls.__mro__ if issubclass(base, Method)]
    return [base for base in dict.fromkeys(found) if base not in known and inspect.get_annotations(base)]


def _method(entry: dict[str, Any], cls: type[Method]) -> str:
    head, objective, rest = formula(inspect.getdoc(cls) or "")
    trains = {("shared",): "the global model", ("personal",): "a model of its own"}
    facts = {
        "Paper": entry["paper"],
        "Name": f"{code('method: ' + entry['name'])} in a settings file, {path_of(cls)} in Python",
        "A client trains": trains.get(cls.trains, "the global model, and one of its own"),
        "A client deploys": "a model of its own" if cls.personalizes else "the global model",
        "Global model": "yes" if cls.has_shared else "none",
    }
    if isinstance(work := getattr(cls, "default_work", None), Work):
        facts["Work of a round"] = _work(work)
    listed = "\n".join(f"- **{name}**: {fact}" for name, fact in facts.items())
    parts = (heading(2, entry["name"]), head, f"> {objective}", rest, listed, _fields(entry, cls), _source(cls))
    return "\n\n".join(filter(None, parts))


def _work(work: Work) -> str:
    number, of = (work.steps, "step") if work.steps else (work.epochs, "epoch")
    return f"{number} {of}{'' if number == 1 else 's'}, unless `steps` or `epochs` is given"


def _source(cls: type) -> str:
    lines = "".join(f"    {line}\n" if line else "\n" for line in inspect.getsource(cls).rstrip().split("\n"))
    return f'??? note "The code"\n\n    ```python\n{lines}    ```'


def others() -> str:
    """Everything else that settings can name, kind by kind."""
    return distinct("\n\n".join(_kind(kind) for kind in CATALOG if kind != "methods"))


def _kind(kind: str) -> str:
    found = [_entry(entry, CATALOG[kind][entry["name"]]) for entry in entries(kind)]
    return "\n\n".join([heading(2, kind.capitalize()), *found, *_presets(kind)])


def _presets(kind: str) -> list[str]:
    """Names that stand for several parts of a kind, with what could be written in their place."""
    rows = [
        [code(p["name"]), inline(p["summary"]), code(_as_yaml(p["parts"])), ", ".join(map(str, p["malicious"]))]
        for p in presets(kind)
    ]
    if not rows:
        return []
    columns = ["preset", "what it is", f"the same as {kind}", "malicious in the paper"]
    return [heading(3, f"Presets of {kind}"), table(columns, rows)]


def _entry(entry: dict[str, Any], make: Callable[..., Any]) -> str:
    text = prose(inspect.getdoc(make) or "")
    parts = (heading(3, entry["name"]), text, f"In Python: {path_of(make)}", _fields(entry, make))
    return "\n\n".join(filter(None, parts))


def _fields(entry: dict[str, Any], make: Callable[..., Any]) -> str:
    """The fields with type and default and, where several classes explain them, the one that does."""
    rows = []
    for field in entry["fields"]:
        default = "required" if field["required"] else code(_as_yaml(field["default"]))
        rows.append([code(field["name"]), code(field["type"]), default, _explained_in(make, field["name"])])
    if not any(row[3] for row in rows):
        rows = [row[:3] for row in rows]
    return table(["field", "type", "default", "explained in"][: len(rows[0])], rows) if rows else ""


def _explained_in(make: Any, field: str) -> str:
    """A link to the class that declares a field, where that is another one with a section of its own."""
    declare = [cls for cls in getattr(make, "__mro__", ()) if field in inspect.get_annotations(cls)]
    shown = {cls: cls.__name__ for cls in _bases()}
    shown |= {part: name for parts in CATALOG.values() for name, part in parts.items()}
    if not declare or declare[-1] is make or declare[-1] not in shown:
        return ""
    return f"[{shown[declare[-1]]}](#{anchor(shown[declare[-1]])})"


def _as_yaml(value: Any) -> str:
    """A value as a settings file writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_as_yaml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_yaml, value)) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_ROLES: dict[str, str] = {
    "result": "What the result follows from",
    "how": "How it is carried out",
    "label": "What it is called",
}


def settings() -> str:
    """The settings of a run as they are declared; what is handed to `simulate` by name in a file comes first."""
    known = declared(RunSettings)
    shared = declared(Settings)
    known = {name: entry for name, entry in known.items() if name not in shared} | shared
    parts = []
    for role, title in _ROLES.items():
        rows = [_setting(name, entry) for name, entry in known.items() if entry.role == role]
        parts += [heading(3, title), table(["setting", "default", "allowed", "meaning"], rows)]
    return "\n\n".join(parts)


def _setting(name: str, entry: Setting) -> list[str]:
    default = "required" if entry.required else code(_as_yaml(entry.default))
    return [code(name), default, prose(entry.allowed.what), prose(entry.help)]


def commands() -> str:
    """Every command with its arguments, from the command line itself."""
    group: Any = get_command(app)
    context = typer.Context(group, info_name="descant")
    return "\n\n".join(_command(name, command) for name, command in _leaves(group, context))


def _leaves(group: Any, context: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, also those of groups."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _leaves(command, context, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=f"descant {name}")
    rows = []
    for parameter in command.get_params(context):
        shown, told = parameter.get_help_record(context)
        told = " ".join(told.split()).replace("\\[", "[")  # which is escaped for a terminal with markup
        rows.append([code(shown), prose(told)])
    usage = " ".join([f"descant {name}", *command.collect_usage_pieces(context)])
    told = prose(inspect.cleandoc(command.help or ""))
    return "\n\n".join(
        [heading(2, f"descant {name}"), f"```sh\n{usage}\n```", told, table(["argument", "meaning"], rows)]
    )


def contract() -> str:
    """What a method consists of, as its base class says."""
    rows = []
    for name, member in vars(Method).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            told = inspect.getdoc(member) or ""
            rows.append([code(called(name, member)), prose(told.split("\n\n")[0])])
    return table(["function", "what it says"], rows)


def python() -> str:
    """The functions and classes of the package itself, and those that look on at runs."""
    named = {name: getattr(descant, name) for name in descant.__all__}
    named["report"] = report  # descant.report is a module, which is called, too
    named |= {f"callbacks.{name}": getattr(descant.callbacks, name) for name in descant.callbacks.__all__}
    return distinct("\n\n".join(thing(name, value) for name, value in named.items() if callable(value)))


PAGES: dict[str, Callable[[], str]] = {
    "methods": methods,
    "others": others,
    "contract": contract,
    "settings": settings,
    "commands": commands,
    "python": python,
}
