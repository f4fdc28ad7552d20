"""A hook leaves its method and the server's state as they were: what is to last is in the state that it returns.

Otherwise results would depend on how often a hook is called, and in which order: a run that is gone on with, or one
that is evaluated more often, would be another. Methods of the user's own are looked at, after each of their hooks.
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

_PLAIN = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, dict, set)
_GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
# The hooks that are handed what the server holds, or what they are to leave as it is.
_READING = ("server", "broadcast", "reply", "shared", "silent", "cohort_weights")


class Unchanged:
    """What the hooks of a method must leave as it was."""

    def __init__(self, method: Method) -> None:
        self.parts = [part for part in _parts(method) if not of_descant(type(part))]
        self.begun = self._held()

    def check(self, hook: str) -> None:
        """Refuse a hook that has changed its method, or drawn from a generator of its author's."""
        if not self.parts:
            return
        now = self._held()
        for name in self.begun.keys() | now.keys():
            if self.begun.get(name) != now.get(name):
                raise SettingError(f"the hook {hook} {name}")

    def versions(self, hook: str, args: Iterable[Any]) -> list[tuple[str, Tensor, int]]:
        """How often the leaves that a hook of the server is handed have been written to so far."""
        if not self.parts or hook not in _READING:
            return []
        trees = [arg for arg in args if isinstance(arg, Mapping)]
        leaves = [(name, leaf) for tree in trees for name, leaf in tree.items() if isinstance(leaf, Tensor)]
        return [(name, leaf, leaf._version) for name, leaf in leaves if not leaf.is_inference()]

    def _held(self) -> dict[str, Any]:
        """What the parts hold, by what is said where it has changed."""
        found: dict[str, Any] = {}
        for part in self.parts:
            cls = type(part)
            for name, value in vars(part).items():
                if not isinstance(getattr(cls, name, None), cached_property):
                    said = f"changes self.{name} of {cls.__name__}: an object of a method never changes"
                    found[f"{said}; keep it in the client's or the server's state"] = _told(value)
            for each in (each for each in cls.__mro__ if not of_descant(each) and each is not object):
                for name, value in vars(each).items():
                    if isinstance(value, _PLAIN) and not name.startswith("__"):
                        said = f"changes {name} of the class {each.__name__}, which all of its runs share"
                        found[f"{said}; keep it in the client's or the server's state"] = _told(value)
                beside = vars(sys.modules[each.__module__]) if each.__module__ in sys.modules else {}
                for name, value in {**beside, **vars(each)}.items():
                    if isinstance(value, _GENERATORS):
                        said = f"draws from the generator {name}, and so depends on the order of the work"
                        found[f"{said}: draw by address, as in ctx.normal('noise', (d,))"] = _state(value)
        return found


def refuse_written(hook: str, before: list[tuple[str, Tensor, int]]) -> None:
    """Refuse a hook that has written into what it was handed."""
    for name, leaf, version in before:
        if leaf._version != version:
            raise SettingError(
                f"the hook {hook} writes into '{name}', which it is handed and which is to stay as it is: "
                "write w * 0.9 in the place of w.mul_(0.9), or begin with a copy (w.clone())"
            )


def _parts(method: Any) -> Iterator[Any]:
    """A method, and the parts that it is made of, as a solver."""
    yield method
    for value in vars(method).values():
        for each in tree_leaves(value) if isinstance(value, tuple) else [value]:
            if isinstance(each, Checked):
                yield from _parts(each)


def _told(value: Any) -> Any:
    """What tells whether something has changed: what lists hold, and of objects which one it is."""
    if isinstance(value, Tensor):
        return id(value), None if value.is_inference() else value._version
    if isinstance(value, _GENERATORS):
        return _state(value)
    return repr(value) if isinstance(value, (*_PLAIN, *_CONTAINERS)) else id(value)


def _state(generator: Any) -> Any:
    """Where a generator stands."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().cpu().numpy().tobytes()
    if isinstance(generator, random.Random):
        return hash(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return repr(generator.get_state())
    return repr(generator.bit_generator.state)
