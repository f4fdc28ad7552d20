"""What a run follows from, as fingerprints: data, architecture and code. First parameters are no part of it.

Code is that of the classes and functions themselves, without comments and layout; what these call by name is not
followed. Code of torch and of this package is told by their versions instead.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from textwrap import dedent
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from descant.data import FederatedData
from descant.methods import Method
from descant.task import Task

_PLAIN = (bool, int, float, str, bytes, type(None))
_VERSIONED = ("torch", "descant", "builtins")
# What `_text` found: Python parses the whole file of a class to find its text, for every run of a comparison anew.
_TEXTS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def fingerprints(task: Task, data: FederatedData, method: Method, **parts: object) -> dict[str, str]:
    """By name: what must be the same for a run to be gone on with; `parts` are those that act on mail."""
    return of_problem(task, data) | of_parts(method, **parts)


def of_problem(task: Task, data: FederatedData) -> dict[str, str]:
    """The fingerprints of data, model, the user's layers in it, loss and metric."""
    metric = task.metric
    over = () if metric.over == "examples" else (metric.over,)  # by default it is not told
    return {
        "data": data.fingerprint,
        "model": model_fingerprint(task.model),
        "layers": layers_fingerprint(task.model),
        "loss": _hash(code(task.loss)),
        "metric": _hash([metric.name, metric.higher_is_better, code(metric.of), *over]),
    }


def of_parts(method: Method, **parts: object) -> dict[str, str]:
    """The fingerprints of a method and of the parts that act on mail: their code."""
    acting = {name: _hash([each for one in _listed(part) for each in _codes(one)]) for name, part in parts.items()}
    return {"method": _hash(_codes(method))} | acting


def of_users(part: object) -> bool:
    """Whether a part, or one that is its field, is of a class of the user's own."""
    if not is_dataclass(part) or isinstance(part, type):
        return isinstance(part, tuple) and any(map(of_users, part))
    own = type(part).__module__.split(".")[0] not in _VERSIONED
    return own or any(of_users(getattr(part, field.name)) for field in fields(part))


def model_fingerprint(model: nn.Module) -> str:
    """What tells an architecture, and the code of its layers, from others."""
    return _hash(architecture(model))


def layers_fingerprint(model: nn.Module) -> str:
    """What tells the code of the user's own layers from others, whatever the data that a model is made to fit."""
    codes = [code(cls) for cls in {type(layer) for layer in model.modules()}]
    return _hash(sorted(json.dumps(each) for each in codes if each[1]))  # torch's and ours are told by versions


def _listed(part: object) -> tuple[object, ...]:
    return part if isinstance(part, tuple) else (part,)


def _codes(part: Any) -> list[Any]:
    """The code of a part, and of the parts that are its fields: a solver, a penalty, the steps of a chain."""
    found = [code(type(part))]
    for field in fields(part) if is_dataclass(part) else ():
        for inner in _listed(getattr(part, field.name)):
            if is_dataclass(inner) and not isinstance(inner, type):
                found += _codes(inner)
    return found


def architecture(model: nn.Module) -> list[Any]:
    """The layers of a module by name: classes, plain attributes and code; and every tensor's shape and type."""
    layers = []
    for name, layer in model.named_modules():
        plain = {key: _plain(value) for key, value in vars(layer).items() if key != "training"}
        layers.append(
            [name, str(type(layer)), {k: v for k, v in plain.items() if v is not None}, code(type(layer))]
        )
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [layers, [[name, list(t.shape), str(t.dtype), t.requires_grad] for name, t in tensors]]


def code(thing: Any) -> Any:
    """The code of a class (with those it is made from), of a function, or of an object that is called as one."""
    if isinstance(thing, partial):
        return [code(thing.func), _plain(thing.args), _plain(thing.keywords)]
    if isinstance(thing, type):
        own = [cls for cls in thing.__mro__ if cls.__module__.split(".")[0] not in _VERSIONED]
        return [thing.__qualname__, [_source(cls) for cls in own]]
    if inspect.ismethod(thing):
        return [
            code(thing.__func__),
            code(thing.__self__) if callable(thing.__self__) else str(type(thing.__self__)),
        ]
    if isinstance(thing, nn.Module):
        return architecture(thing)
    if inspect.isfunction(thing):
        if (thing.__module__ or "").split(".")[0] in _VERSIONED:
            return thing.__qualname__
        cells = [_plain(cell.cell_contents) for cell in thing.__closure__ or ()]
        return [thing.__qualname__, _source(thing), _plain(thing.__defaults__), cells]
    if inspect.isbuiltin(thing):
        return str(thing.__qualname__)
    return [code(type(thing)), {key: _plain(value) for key, value in getattr(thing, "__dict__", {}).items()}]


def _source(thing: type | Callable[..., Any]) -> Any:
    """The text of a class or a function, without comments; its compiled code where there is no text."""
    try:
        if thing not in _TEXTS:
            _TEXTS[thing] = _text(thing)
        return _TEXTS[thing]
    except (OSError, TypeError):
        functions = vars(thing).values() if isinstance(thing, type) else [thing]
        return [_compiled(f.__code__) for f in functions if inspect.isfunction(f)]


def _text(thing: type | Callable[..., Any]) -> str:
    text = dedent(inspect.getsource(thing))
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError:  # a function in the middle of a line
        return text.strip()


def _compiled(compiled: CodeType) -> list[Any]:
    constants = [_compiled(c) if isinstance(c, CodeType) else repr(c) for c in compiled.co_consts]
    return [compiled.co_code.hex(), compiled.co_names, constants]


def _plain(value: Any) -> Any:
    """Numbers, texts and what is made of them; None for anything else, such as an object or its address."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return code(value) if inspect.isfunction(value) else None


def _hash(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
