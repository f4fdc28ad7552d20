"""A hook that draws random numbers without an address is refused: they would depend on the order of the work.

As of a step (`descant.execution.chance`), whether the generators that everybody draws from have moved is looked at
in the first call of every hook, and a hook that is suspected is called once more, for another thread may have moved
them. A hook that sets an attribute of its method is refused, too, and so is one that
changes what the method holds (`descant.engine.unchanged`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError, replace
from traceback import walk_tb
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from descant.engine.unchanged import Unchanged, refuse_written
from descant.engine.view import View
from descant.errors import SettingError
from descant.execution.chance import drawn_again, generators, moved
from descant.fields import Checked
from descant.mail import Mail
from descant.methods import Method

P = ParamSpec("P")
R = TypeVar("R")
_REMEDIES = {
    **dict.fromkeys(("server_start", "first_sent"), "ctx.normal('noise', (d,))"),
    **dict.fromkeys(
        ("client_start", "client", "hear", "personal", "fetches", "judged", "resumes"),
        "local.ctx.each(local.clients).normal('noise', (d,))",
    ),
}
_ON_THE_SERVER = "server.ctx.normal('noise', (d,))"


class Watch:
    """Calls the hooks of a method for the engine, and watches the first call of each."""

    def __init__(self, method: Method, device: torch.device) -> None:
        self.method, self.device = method, device
        self._known: set[str] = set()  # the hooks that draw nothing without an address
        self._unchanged = Unchanged(method)

    def __call__(self, hook: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `call` returns, which is the hook or calls it."""
        named = f"{type(self.method).__name__}.{hook}"
        versions, held = self._unchanged.versions(hook, args), self._unchanged.held()
        try:
            given = call(*args, **kwargs) if hook in self._known else self._first(hook, call, *args, **kwargs)
        except FrozenInstanceError as error:
            if (said := _set_on_a_part(error)) is None:
                raise
            raise SettingError(said) from error
        refuse_written(named, versions)
        self._unchanged.check(named, held)
        return given

    def _first(self, hook: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        again = [arg.spare() if isinstance(arg, View) else arg for arg in args]  # to which nothing has happened yet
        before = generators(self.device)
        given = call(*args, **kwargs)
        if suspected := moved(before, self.device):
            # A hook may write in place: the second call is to change nothing that the first was given or gave.
            given = _apart(given)

            def repeat() -> object:
                views = [arg.spare() if isinstance(arg, View) else _apart(arg) for arg in again]
                return call(*views, **kwargs)  # type: ignore[arg-type]

            for drawn, frames in drawn_again(repeat, suspected):
                self._refuse(hook, drawn, frames)
        self._known.add(hook)
        return given

    def _refuse(self, hook: str, drawn: str, frames: list[FrameType]) -> None:
        """Refuse a draw, unless it is the engine's own: the start of a client, which is drawn by its address."""
        named, remedy = f"{type(self.method).__name__}.{hook}", _REMEDIES.get(hook, _ON_THE_SERVER)
        for frame in frames:  # from the inside
            by = frame.f_locals.get("self")
            if isinstance(by, View):
                return
            if isinstance(by, Checked):
                named = f"{type(by).__name__}.{frame.f_code.co_name}"
                remedy = remedy if isinstance(by, Method) else _REMEDIES["server_start"]
                break
        raise SettingError(
            f"the hook {named} draws random numbers ({drawn}), which would depend on the order "
            f"of the work: draw them by address, as in {remedy}"
        )


def _apart(tree: Any) -> Any:
    """The same on tensors of its own, so that what is written into one is not in the other."""
    return tree_map(_of_its_own, tree)


def _of_its_own(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.clone()
    if isinstance(leaf, Mail):
        return replace(leaf, leaves=_apart(leaf.leaves))
    if isinstance(leaf, dict):  # a server's view
        other = copy(leaf)
        other.update(_apart(dict(leaf)))
        return other
    return leaf


def _set_on_a_part(error: FrozenInstanceError) -> str | None:
    """What is said to the author of a hook that sets an attribute of a method, or of another part."""
    *callers, setter = [frame for frame, _ in walk_tb(error.__traceback__)]
    part, name = setter.f_locals.get("self"), setter.f_locals.get("name")
    if not callers or not isinstance(part, Checked):
        return None
    kind, state = "a part of a run", "the state that it is handed"
    if isinstance(part, Method):
        kind, state = "a method", "the client's or the server's state"
    said = f"{type(part).__name__}.{callers[-1].f_code.co_name} sets self.{name}"
    return f"{said}: an object of {kind} never changes; keep it in {state}"
