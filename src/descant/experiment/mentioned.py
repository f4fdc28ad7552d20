"""The text of a user's code, and what it mentions by name: functions, classes and constants of the user's own.

A name is followed from where a function or the body of a class mentions it, as `tie`, `SCALE` or `helpers.tie`, and
from there on. Not followed are objects (a tensor, an instance), code of the standard library and of installed
packages, what is imported inside a function, and names that are put together as texts. Nor are paths from the root
on, and lists, dicts and sets that their module changes while it runs (`changing`): these are no constants.
"""

from __future__ import annotations

import ast
import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import _lru_cache_wrapper, cached_property, partial, partialmethod
from hashlib import blake2b
from os.path import isabs
from textwrap import dedent
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from descant.experiment.changing import changed_in
from descant.experiment.whose import is_users

_MANY, _LONG = 16, 200  # of numbers, and of letters: more are told by a fingerprint
PLAIN = (bool, int, float, str, bytes, type(None))


class _Names(NamedTuple):
    """What is looked up in the module, and what may be looked up in a module that is found there."""

    globals: frozenset[str]
    attributes: frozenset[str]


class _Written(NamedTuple):
    text: str
    names: _Names  # outside of functions: decorators, defaults and the body of a class
    codes: list[CodeType]  # of the functions: others where a notebook has put new ones into the same class


# Python parses the whole file of a class to find its text, for every run of a comparison anew. Values are not kept:
# they may change.
_WRITTEN: WeakKeyDictionary[Any, _Written] = WeakKeyDictionary()
_NAMES: WeakKeyDictionary[CodeType, _Names] = WeakKeyDictionary()


def source(thing: type | Callable[..., Any]) -> Any:
    """The text of a class or a function, without comments; its compiled code where there is no text."""
    try:
        return _written(thing).text
    except (OSError, TypeError):
        return [_compiled(code) for code in _codes(thing)]


def followed(*roots: Any) -> list[Any]:
    """What functions and classes mention, and what that mentions: code and constants, in an order that is always
    the same. Empty where they mention nothing of the user's own; the code of `roots` themselves is no part of it.

    The first of them need not be the user's own, but may be from an installed package: then its module is followed.
    """
    things = [root for root in roots if is_users(root.__module__, roots[0].__module__)]
    numbers = {id(each): -1 for root in roots for each in _unwrapped(root)}
    first, found = len(things), list[Any]()
    for thing in things:  # which grows
        root, mentions = len(found) < first, list[Any]()
        for name, value in sorted(_mentions(thing, root), key=lambda pair: pair[0]):
            if not isinstance(value, FunctionType | type):
                mentions.append([name, value])
                continue
            if id(value) not in numbers:
                numbers[id(value)] = len(things)
                things.append(value)
            if numbers[id(value)] >= 0:  # a root's own code is told
                mentions.append([name, numbers[id(value)]])
        found.append([None if root else _itself(thing), mentions])
    return found if any(mentions for _, mentions in found) else []


def _itself(thing: Any) -> list[Any]:
    if isinstance(thing, type):
        return [thing.__qualname__, source(thing)]
    defaults = (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
    return [thing.__qualname__, source(thing), [repr(each) for each in defaults if isinstance(each, PLAIN)]]


def _mentions(thing: Any, root: bool) -> Iterator[tuple[str, Any]]:
    """Names, and the function, class or plain value that each stands for."""
    if isinstance(thing, type):
        yield from _of_class(thing)
    else:
        yield from _of_function(thing, told=root)
        if thing.__name__ != "<lambda>":  # whose text is all of the statement that it stands in
            inner = _unwrapped(thing)[-1]
            yield from _outside(thing, inner.__globals__, inner.__module__)


def _of_class(cls: type) -> Iterator[tuple[str, Any]]:
    within = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    for name, member in vars(cls).items():
        if name.startswith("__annot"):
            continue
        for path, value in _leaves(name, member, cls.__module__):
            if not isinstance(value, FunctionType | type):
                continue  # the text of the class has it
            if value.__module__ != cls.__module__ or not value.__qualname__.startswith(f"{cls.__qualname__}."):
                yield path, value  # written elsewhere
                continue
            if isinstance(value, FunctionType):
                within = _unwrapped(value)[-1].__globals__
            inner = _of_class(value) if isinstance(value, type) else _of_function(value)
            yield from ((f"{path}.{inside}", mentioned) for inside, mentioned in inner)
    for number, base in enumerate(cls.__bases__):
        yield from _leaves(f"base {number}", base, cls.__module__)
    yield from _outside(cls, within, cls.__module__)


def _of_function(function: Any, told: bool = False) -> Iterator[tuple[str, Any]]:
    """What the names in a function stand for. `told`: what it holds of an outer function is known already."""
    layers = _unwrapped(function)
    for depth, layer in enumerate(layers):
        beside = str(layer.__globals__.get("__name__", ""))
        names = _names(layer.__code__)
        if is_users(beside, function.__module__):  # and no decorator of a library
            yield from _looked_up(names, layer.__globals__, beside)
            if layer is not layers[-1]:  # whose text is the one that is told
                yield f"wrapper {depth}", str(_compiled(layer.__code__))
        if layer.__code__.co_filename == "<string>":
            continue  # the __init__ of a dataclass holds the types and defaults of its fields
        for name, cell in zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:  # it is still empty
                continue
            if any(held is each for each in layers) or isinstance(held, list | dict | set):
                continue  # what code notes in a list while it runs is no part of it
            if not (told and depth == 0 and isinstance(held, (FunctionType, tuple, *PLAIN))):
                yield from _leaves(f"({name})", held, beside, names.attributes)


def _outside(thing: Any, within: Mapping[str, Any], beside: str) -> Iterator[tuple[str, Any]]:
    """What decorators, defaults and the body of a class mention."""
    try:
        yield from _looked_up(_written(thing).names, within, beside)
    except (OSError, TypeError):
        return


def _looked_up(names: _Names, within: Mapping[str, Any], beside: str) -> Iterator[tuple[str, Any]]:
    changed = changed_in(beside)
    for name in names.globals:
        if name in within and not name.startswith("__"):  # __file__ is another one in another folder
            if name in changed and isinstance(within[name], list | dict | set):
                continue  # what code notes while it runs is no part of it
            yield from _leaves(name, within[name], beside, names.attributes)


def _leaves(
    name: str, value: Any, beside: str, attributes: frozenset[str] = frozenset(), within: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """The plain values, and the functions and classes of the user's, that a value is or is made of."""
    if isinstance(value, PLAIN):
        if not (isinstance(value, str) and isabs(value)):  # which is another one on another machine
            yield name, _told(value)
    elif isinstance(value, FunctionType | type):
        if is_users(value.__module__, beside):
            yield name, value
    elif isinstance(value, set | frozenset):
        if value and all(isinstance(item, PLAIN) for item in value):
            yield name, _told(_repr(value))
    elif isinstance(value, list | tuple) and len(value) > _MANY and all(type(item) in PLAIN for item in value):
        yield name, _told(repr(value))
    elif id(value) not in within:  # a list may hold itself, and a module itself
        for label, inner in _parts(value, beside, attributes):
            yield from _leaves(name + label, inner, beside, attributes, (*within, id(value)))


def _parts(value: Any, beside: str, attributes: frozenset[str]) -> list[tuple[str, Any]]:
    """What a container, a function in a wrapping or a module of the user's holds."""
    if isinstance(value, tuple | list):
        return [(f"[{number}]", item) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items() if isinstance(key, PLAIN)]
    if isinstance(value, ModuleType):
        held = vars(value) if is_users(value.__name__, beside) else {}
        changed = changed_in(value.__name__) | changed_in(beside) if held else frozenset[str]()
        names = [each for each in attributes if each in held and not each.startswith("__")]
        noted = {each for each in names if each in changed and isinstance(held[each], list | dict | set)}
        return [(f".{each}", held[each]) for each in names if each not in noted]
    if isinstance(value, partial | partialmethod):
        return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, staticmethod | classmethod | MethodType):
        return [(".func", value.__func__)]
    if isinstance(value, property):
        return [(".get", value.fget), (".set", value.fset), (".del", value.fdel)]
    if isinstance(value, cached_property):
        return [(".func", value.func)]
    return [(".func", value.__wrapped__)] if isinstance(value, _lru_cache_wrapper) else []


def _unwrapped(thing: Any) -> list[Any]:
    """A function, and those that decorators have wrapped in it."""
    found = [thing]
    while isinstance(found[-1], FunctionType):
        inner = vars(found[-1]).get("__wrapped__")
        if not isinstance(inner, FunctionType) or inner in found:
            break
        found.append(inner)
    return found


def _names(code: CodeType) -> _Names:
    """The names in a function and in those that are written in it; not those that it sets itself."""
    if code not in _NAMES:
        reads, attributes, sets = set[str](), set[str](), set[str]()
        for each in _codes_in(code):
            attributes |= {*each.co_names}
            for step in dis.get_instructions(each):
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                    reads.add(step.argval)
                elif step.opname == "STORE_GLOBAL":
                    sets.add(step.argval)
        _NAMES[code] = _Names(frozenset(reads - sets), frozenset(attributes))
    return _NAMES[code]


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)


def _codes(thing: Any) -> list[CodeType]:
    functions = vars(thing).values() if isinstance(thing, type) else [thing]
    return [each.__code__ for each in functions if inspect.isfunction(each)]


def _compiled(compiled: CodeType) -> list[Any]:
    constants = [_compiled(c) if isinstance(c, CodeType) else _repr(c) for c in compiled.co_consts]
    return [compiled.co_code.hex(), compiled.co_names, constants]


def _told(value: Any) -> str:
    """A plain value as text, long ones by a fingerprint. Of a class that is made from int or str the number or the
    text counts: what it shows may be where it lies."""
    kind: Any = next(each for each in PLAIN if isinstance(value, each))
    said = kind.__repr__(value)
    return said if len(said) <= _LONG else blake2b(said.encode(), digest_size=16).hexdigest()


def _repr(value: Any) -> str:
    """The same in every process: the order of a set is not."""
    return str(sorted(map(repr, value))) if isinstance(value, set | frozenset) else repr(value)


def _written(thing: Any) -> _Written:
    known, codes = _WRITTEN.get(thing), _codes(thing)
    if known is None or known.codes != codes:
        text = dedent(inspect.getsource(thing))
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a function in the middle of a line
            known = _Written(text.strip(), _Names(frozenset(), frozenset()), codes)
        else:
            outside = _Outside()
            outside.visit(tree)
            names = _Names(frozenset(outside.names), frozenset(outside.attributes))
            known = _Written(ast.dump(tree), names, codes)
        _WRITTEN[thing] = known
    return known


class _Outside(ast.NodeVisitor):
    """Names that are looked up when a class or a function is made; types that are declared are none."""

    def __init__(self) -> None:
        self.names, self.attributes = set[str](), set[str]()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self.visit(each)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.generic_visit(node)
