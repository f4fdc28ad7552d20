"""What the extra `data` brings."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def need(module: str, package: str) -> Any:
    """A module of an optional package, or the way to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this data needs {package}: pip install 'descant[data]'") from error
