"""A hook leaves its method and the server's state as they were: what is to last is in the state that it returns.

Otherwise results would depend on how often a hook is called, and in which order: a run that is gone on with, or one
that is evaluated more often, would be another. Methods of the user's own are looked at, before and after each of
their hooks. Of long lists the first elements count, and of objects which ones they are.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from descant.errors import SettingError
from descant.fields import Checked, of_descant
from descant.methods import Method

_MANY = 50  # elements of a list that are looked at
_PLAIN = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, tuple, dict, set)
_GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
# The hooks that are handed what the server holds, or what they are to leave as it is.
_READING = ("server", "broadcast", "reply", "shared", "silent", "cohort_weights")
_KEEP = "keep it in the client's or the server's state, or what is found once in a functools.cached_property"
Versions = list[tuple[str, Tensor, int]]  # tensors by name, and how often each has been written to


class Unchanged:
    """What the hooks of a method must leave as it was."""

    def __init__(self, method: Method) -> None:
        self.parts = [part for part in parts(method) if not of_descant(type(part))]
        classes = {each: None for part in self.parts for each in type(part).__mro__ if not of_descant(each)}
        self.classes = [
            (each, [name for name, value in vars(each).items() if isinstance(value, _PLAIN) and name[:2] != "__"])
            for each in classes
            if each is not object
        ]
        modules = {each.__module__: sys.modules.get(each.__module__) for each, _ in self.classes}
        beside = [*(vars(module) for module in modules.values() if module), *(vars(each) for each in classes)]
        self.generators = [
            (name, value) for held in beside for name, value in held.items() if isinstance(value, _GENERATORS)
        ]

    def held(self) -> list[tuple[str, Any]]:
        """What the parts, their classes and the generators of their files hold, by what is said of a change."""
        if not self.parts:
            return []
        found = []
        for part in self.parts:
            cls = type(part)
            for name, value in vars(part).items():
                if not isinstance(getattr(cls, name, None), cached_property):
                    said = f"changes self.{name} of {cls.__name__}: an object of a method never changes; {_KEEP}"
                    found.append((said, _told(value)))
        for each, names in self.classes:
            for name in names:
                said = f"changes {name} of the class {each.__name__}, which all of its runs share; {_KEEP}"
                found.append((said, _told(vars(each).get(name))))
        for name, generator in self.generators:
            said = f"draws from the generator {name}, and so depends on the order of the work"
            found.append((f"{said}: draw by address, as in ctx.normal('noise', (d,))", _state(generator)))
        return found

    def check(self, hook: str, before: list[tuple[str, Any]]) -> None:
        """Refuse a hook that has changed its method since `before`, or drawn from a generator of its author's."""
        known = dict(before)
        for said, value in self.held() if self.parts else ():
            if said not in known or known[said] != value:
                raise SettingError(f"the hook {hook} {said}")

    def versions(self, hook: str, args: Iterable[Any]) -> Versions:
        """How often the leaves that a hook of the server is handed have been written to so far."""
        if not self.parts or hook not in _READING:
            return []
        return versions_of(arg for arg in args if isinstance(arg, Mapping))


def versions_of(trees: Iterable[Mapping[str, Any]]) -> Versions:
    """How often the leaves of trees have been written to so far."""
    leaves = [(name, leaf) for tree in trees for name, leaf in tree.items() if isinstance(leaf, Tensor)]
    return [(name, leaf, leaf._version) for name, leaf in leaves if not leaf.is_inference()]


def refuse_written(hook: str, before: Versions) -> None:
    """Refuse a hook that has written into what it was handed."""
    for name, leaf, version in before:
        if leaf._version != version:
            raise SettingError(
                f"the hook {hook} writes into '{name}', which it is handed and which is to stay as it is: "
                "write w * 0.9 in the place of w.mul_(0.9), or begin with a copy (w.clone()); rows that the server "
                "holds of its clients are written by messages.into(server['u'], 'u')"
            )


def parts(method: Any) -> Iterator[Any]:
    """A method, and the parts that it is made of, as a solver."""
    yield method
    for value in vars(method).values():
        for each in tree_leaves(value) if isinstance(value, tuple) else [value]:
            if isinstance(each, Checked):
                yield from parts(each)


def has_users(method: Method) -> bool:
    """Whether a method, or one that it is made of, is a user's own."""
    return any(isinstance(part, Method) and not of_descant(type(part)) for part in parts(method))


def _told(value: Any, deep: bool = True) -> Any:
    """What tells whether something has changed: what lists hold, and of objects which one it is."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, _GENERATORS):
        return _state(value)
    if not isinstance(value, _CONTAINERS) or not deep:
        return id(value)
    inner = value.items() if isinstance(value, dict) else value
    first = [_told(each, isinstance(each, tuple | list)) for _, each in zip(range(_MANY), inner, strict=False)]
    return id(value), len(value), first


def _state(generator: Any) -> Any:
    """Where a generator stands."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().cpu().numpy().tobytes()
    if isinstance(generator, random.Random):
        return hash(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)
        return state["state"]["pos"], state["state"]["key"].tobytes(), state["has_gauss"]
    return repr(generator.bit_generator.state)
