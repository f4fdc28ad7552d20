"""A hook that asks for a leaf which is not there is told which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType

from descant import mail
from descant.errors import SettingError
from descant.methods import Method


@contextmanager
def leaves_named() -> Iterator[None]:
    """Let a method's own KeyError say what the method asked, and what it was handed; others stay as they are.

    What hooks are handed is plain dicts, which cannot say so themselves.
    """
    try:
        yield
    except KeyError as error:
        if (frame := _asking(error)) is None:
            raise
        asked = f"the hook {type(frame.f_locals['self']).__name__}.{frame.f_code.co_name} asked for {error}"
        raise SettingError(f"{asked}, which is not there: {_handed(frame)}") from error


def _asking(error: KeyError) -> FrameType | None:
    """The call of a method's function that ended in this error; none where something that it called is at fault."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    # Messages look a leaf up for the method, and what stands in brackets may be a function of its own.
    between = (frame.f_globals["__name__"] == mail.__name__ or frame.f_code.co_name[0] == "<" for frame in frames)
    last = [frame for frame, inner in zip(frames, between, strict=True) if not inner][-1]
    return last if isinstance(last.f_locals.get("self"), Method) else None


def _handed(frame: FrameType) -> str:
    """The trees among the arguments of a call, with the names of their leaves."""
    given = {name: frame.f_locals.get(name) for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]}
    trees = {name: tree for name, tree in given.items() if isinstance(tree, Mapping)}
    said = (f"'{name}' has {', '.join(map(repr, tree)) or 'no leaves'}" for name, tree in trees.items())
    return "; ".join(said) or "look where the method makes it"
