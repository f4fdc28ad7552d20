"""Which names of a module its own code changes while it runs: a memo that is filled, a list that is added to."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache

_METHODS = (
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"),
    *("setdefault", "popitem", "difference_update", "intersection_update", "symmetric_difference_update"),
)


def changed_in(module: str) -> frozenset[str]:
    """The names of lists, dicts and sets that the code of a module changes in place; none where it has no text."""
    file = vars(sys.modules[module]).get("__file__") if module in sys.modules else None
    if not isinstance(file, str):
        return frozenset()
    linecache.checkcache(file)
    return _changed("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _changed(text: str) -> frozenset[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # it was edited since
        return frozenset()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(name for function in functions for node in ast.walk(function) for name in _of(node))


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        yield from _name(node.func.value)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield from _name(node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _name(node.target)


def _name(node: ast.expr) -> Iterator[str]:
    """A name, and the last one of helpers.NAME."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
