"""Whether what a class says of itself, in its own words and not by a hook's code, is what the others read there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from descant.errors import SettingError, shown
from descant.mail import LAST, Sent
from descant.methods import Method
from descant.rounding import Rounding

HOW_TO_SEND = (
    """sends = {"v": difference("w")} where v says how the broadcast's w changes, and position("w") where it is """
    "a model that moved away from w (`from descant.methods import difference, position`)"
)
_NONE = object()
_MODELS = ("shared", "personal")  # that every method may train
_SETTINGS = (  # of a run, and of its model, that a method may refuse (`Method.refuses`)
    *("own_start", "trainers", "aggregator", "newcomers", "codec", "downlink", "statistics", "one_output"),
)


class _Said(NamedTuple):
    """What something may be that a class says, in code and in words."""

    allowed: Callable[[Any], bool]
    what: str


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_name, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _says_what_is_sent(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_name(name) and _is_sent(sent) for name, sent in value.items())


def _is_sent(value: Any) -> bool:
    if not isinstance(value, Sent) or not isinstance(value.of, str) or not isinstance(value.beside, str):
        return False
    return value.what == "position" or (value.what == "difference" and value.of != LAST)


def _says_what_it_refuses(value: Any) -> bool:
    return isinstance(value, Mapping) and all(name in _SETTINGS and _is_name(why) for name, why in value.items())


def _models(example: str) -> _Said:
    what = f"a tuple of the models that `local.run` is called for, as in {example}"
    return _Said(
        lambda value: _are_names(value) and len(value) > 0 and not any("/" in name for name in value), what
    )


_FLAG = _Said(lambda value: isinstance(value, bool), "True or False")
_NAME = _Said(_is_name, 'a name, as in name = "mine"')
_LEAVES = _Said(_are_names, "a tuple of names, as in ('w',); () is none")
_OF_METHODS = {
    "paper": _Said(_is_text, "text"),
    "trains": _models("('personal',)"),
    "has_shared": _FLAG,
    "personalizes": _FLAG,
    "mute": _FLAG,
    "sends": _Said(
        _says_what_is_sent,
        "a dict that says for leaves of the message how they moved, by `difference` of a leaf of the broadcast or "
        f"`position`, as in {HOW_TO_SEND}",
    ),
    "needs": _Said(lambda value: _is_text(value) and value in ("sums", "rows"), "'sums' or 'rows'"),
    "weighs": _FLAG,
    "rounding": _Said(lambda value: isinstance(value, Rounding | None), "a descant.methods.base.Rounding, or None"),
    "turns": _FLAG,
    "held": _LEAVES,
    "drops_stragglers": _FLAG,
    "unbounded": _LEAVES,
    "refuses": _Said(
        _says_what_it_refuses,
        "a dict with a reason for each setting that is refused, as in {'codec': 'why not'}; these may be "
        + ", ".join(_SETTINGS),
    ),
}


def _check_spelt(cls: type, trains: tuple[str, ...]) -> None:
    """Refuse a model that is nearly called like one of those that every method may train."""
    for model in trains:
        near = [] if model in _MODELS else get_close_matches(model.lower(), _MODELS, n=1, cutoff=0.8)
        # personal_1 beside personal_2 says more than the word, and so does what stands beside the word itself.
        if near and near[0] not in trains and (model.lower() == near[0] or near[0] not in model.lower()):
            raise SettingError(
                f"class {cls.__name__} has trains = {shown(trains)}: is '{model}' meant to be '{near[0]}'?"
            )


def check_said(found: Any, base: type) -> None:
    """Refuse a class, or an object of one, that says something of itself which cannot be meant.

    What a property gives is known of an object alone.
    """
    cls: Any = found if isinstance(found, type) else type(found)
    for attribute, said in {"name": _NAME, **(_OF_METHODS if base is Method else {})}.items():
        value = inspect.getattr_static(cls, attribute, _NONE)
        if found is not cls and value is not _NONE:
            value = getattr(found, attribute)
        if value is _NONE or (found is cls and hasattr(type(value), "__get__")):
            continue
        if not said.allowed(value):
            raise SettingError(f"class {cls.__name__} has {attribute} = {shown(value)}: it must be {said.what}")
        if attribute == "trains":
            _check_spelt(cls, value)
