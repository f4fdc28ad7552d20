"""A step that draws random numbers without an address is refused: they would depend on the order of the work.

Whether the generators of torch, of numpy and of Python have moved is looked at once a run for every step, whatever
the mode. Another thread may have moved them as well: so a step that is suspected is taken once more, and what it
does is watched.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterable
from traceback import walk_stack
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from descant.errors import SettingError
from descant.execution.base import Execution
from descant.execution.batches import Schedule
from descant.execution.captured import run
from descant.execution.mixing import refuse_mixing
from descant.execution.stepping import hook_of
from descant.execution.steps import advance, of_method
from descant.execution.walk import Start, Walked
from descant.methods.base import Step


def run_watched(
    step: Step, execution: Execution, begin: int, end: int, start: Start, schedules: list[Schedule]
) -> Walked:
    """As `run`; the first of a step's runs is watched."""
    hook = hook_of(of_method(step))
    if hook in execution.watched:
        return run(step, execution, begin, end, start, schedules)
    device = start.met.device
    before = generators(device)
    walked = run(step, execution, begin, end, start, schedules)
    if suspected := moved(before, device):
        _refuse_draws(hook, suspected, step, execution, begin, start, schedules)
    refuse_mixing(step, execution, begin, start, walked.x, schedules)
    execution.watched.add(hook)
    return walked


def generators(device: torch.device) -> dict[str, Any]:
    """The states of the generators that everybody draws from; nothing waits for it."""
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    of_torch = [state.numpy().tobytes() for state in (torch.get_rng_state(), *on_gpu)]
    return {"torch": of_torch} | {by: state() for by, state in _BESIDE.items()}


def moved(before: dict[str, Any], device: torch.device) -> list[str]:
    """Whose generators have moved since then."""
    now = generators(device)
    return [by for by, state in before.items() if state != now[by]]


def _of_numpy() -> list[Any]:
    leaves = tree_leaves(np.random.get_state(legacy=False))
    return [leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]


# The generators beside torch's, whose operations cannot be watched.
_BESIDE: dict[str, Callable[[], Any]] = {"numpy": _of_numpy, "Python's random": random.getstate}


def drawn_again(call: Callable[[], object], suspected: Iterable[str]) -> list[tuple[str, list[FrameType]]]:
    """What draws in a call that is made again, and the calls that led to it.

    Other threads draw from the generators of numpy and Python as well, and who it was cannot be told: where there
    are such, these generators are not looked at.
    """
    seen = Drawing(by for by in suspected if by not in _BESIDE or _alone())
    with seen:
        call()
    return seen.drawn


def _alone() -> bool:
    """Whether this is the only thread of Python's, but for those that draw bars of progress."""
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    return all(type(each).__module__.partition(".")[0] in ("rich", "tqdm") for each in others)


def _refuse_draws(
    hook: str,
    suspected: list[str],
    step: Step,
    execution: Execution,
    begin: int,
    start: Start,
    schedules: list[Schedule],
) -> None:
    sources, active = tuple(schedule.at(begin) for schedule in schedules), start.left.to(start.met.device) > begin

    def again() -> None:  # a step that writes in place must not do so twice
        x, statistics, rows = tree_map_only(Tensor, torch.clone, (start.x, start.statistics, start.rows))
        advance(step, execution, x, statistics, sources, active, rows)

    if drawn := drawn_again(again, suspected):
        raise SettingError(
            f"the hook {hook} draws random numbers ({drawn[0][0]}), which would depend on the order of "
            "the work: draw them by address in the hook client, as in "
            "local.ctx.each(local.clients).normal('noise', (d,)), and hand them to local.run as a tensor after x"
        )


class Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what draws from the generators that everybody draws from, and the calls that led to it.

    Of torch these are the operations. A generator of somebody else, where it is `suspected`, is looked at before
    every operation of torch: what has moved it is thereabouts.
    """

    def __init__(self, suspected: Iterable[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[tuple[str, list[FrameType]]] = []
        self._states = {by: _BESIDE[by]() for by in suspected if by in _BESIDE}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frames = [frame for frame, _ in walk_stack(sys._getframe(1))]
        self._look([frame for frame in frames if not _of_descant(frame)])
        if torch.Tag.nondeterministic_seeded in func.tags and (kwargs or {}).get("generator") is None:
            self.drawn.append((f"torch: {func.overloadpacket.__name__}", frames))
        return func(*args, **(kwargs or {}))

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._look([])

    def _look(self, frames: list[FrameType]) -> None:
        for by, before in self._states.items():
            if (now := _BESIDE[by]()) != before:
                self._states[by] = now
                self.drawn.append((by, frames))


def _of_descant(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "descant"
