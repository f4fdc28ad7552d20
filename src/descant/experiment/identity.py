"""What a run follows from, as fingerprints: data, architecture and code. First parameters are no part of it.

Code is that of the classes and functions themselves, without comments and layout, and of what they mention by name
of the user's own: `mentioned` says what is followed. Code of torch and of this package is told by their versions.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

from torch import nn

from descant.data import FederatedData
from descant.experiment.mentioned import PLAIN, followed, source
from descant.experiment.whose import VERSIONED
from descant.methods import Method
from descant.task import Task


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
    own = type(part).__module__.split(".")[0] not in VERSIONED
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


def code(thing: Any, within: tuple[Any, ...] = ()) -> Any:
    """The code of a class (with those it is made from), of a function, or of an object that is called as one.

    What it mentions of the user's own comes last, if anything. `within` are the functions that it is part of.
    """
    if isinstance(thing, partial):
        return [code(thing.func, within), _plain(thing.args, within), _plain(thing.keywords, within)]
    if isinstance(thing, type):
        own = [cls for cls in thing.__mro__ if cls.__module__.split(".")[0] not in VERSIONED]
        return [thing.__qualname__, [source(cls) for cls in own], *_nonempty(followed(*own))]
    if inspect.ismethod(thing):
        return [
            code(thing.__func__, within),
            code(thing.__self__, within) if callable(thing.__self__) else str(type(thing.__self__)),
        ]
    if isinstance(thing, nn.Module):
        return architecture(thing)
    if inspect.isfunction(thing):
        if (thing.__module__ or "").split(".")[0] in VERSIONED or thing in within:
            return thing.__qualname__
        within = (*within, thing)
        cells = [_plain(cell.cell_contents, within) for cell in thing.__closure__ or ()]
        held = [source(thing), _plain(thing.__defaults__, within), cells]
        return [thing.__qualname__, *held, *_nonempty(followed(thing))]
    if inspect.isbuiltin(thing):
        return str(thing.__qualname__)
    return [code(type(thing)), {key: _plain(value) for key, value in getattr(thing, "__dict__", {}).items()}]


def _nonempty(told: list[Any]) -> list[Any]:
    """Code that mentions nothing has the fingerprint of runs from before names were followed."""
    return [told] if told else []


def _plain(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """Numbers, texts and what is made of them; None for anything else, such as an object or its address."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return [_plain(item, within) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, within) for key, item in value.items()}
    return code(value, within) if inspect.isfunction(value) else None


def _hash(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
