"""What is taken for a tensor in a user's step, and is none, says so where it is computed with."""

from __future__ import annotations

from typing import Any

from descant.errors import SettingError

_BINARY = ("add", "sub", "mul", "truediv", "pow", "matmul")
_UNARY = ("neg", "abs")


class NoTensorError(SettingError, AttributeError):
    """Something that is taken for a tensor. To `hasattr` it only lacks the attribute."""


def never_computed_with(cls: type, said: str) -> None:
    """Let the operators of a class refuse with what is `said`."""

    def refuse(*operands: Any) -> Any:
        raise NoTensorError(said)

    for name in (*_BINARY, *(f"r{each}" for each in _BINARY), *_UNARY):
        setattr(cls, f"__{name}__", refuse)
