"""A hook that draws random numbers by torch is refused: what it draws would depend on the order of the work.

As of a step (`descant.execution.chance`), whether torch's generators have moved is looked at in the first call of
every hook, and a hook that is suspected is called once more, for another thread may have moved them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

import torch

from descant.engine.view import View
from descant.errors import SettingError
from descant.execution.chance import Drawing, generators
from descant.fields import Checked
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
        self._known: set[str] = set()  # the hooks that draw nothing by torch

    def __call__(self, hook: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `call` returns, which is the hook or calls it."""
        if hook in self._known:
            return call(*args, **kwargs)
        again = [arg.spare() if isinstance(arg, View) else arg for arg in args]  # to which nothing has happened yet
        before = generators(self.device)
        given = call(*args, **kwargs)
        if not all(map(torch.equal, before, generators(self.device))):
            with Drawing() as seen:
                call(*again, **kwargs)  # type: ignore[arg-type]
            for operation, frames in seen.drawn:
                self._refuse(hook, operation, frames)
        self._known.add(hook)
        return given

    def _refuse(self, hook: str, operation: str, frames: list[FrameType]) -> None:
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
            f"the hook {named} draws random numbers (torch: {operation}), which would depend on the order "
            f"of the work: draw them by address, as in {remedy}"
        )
