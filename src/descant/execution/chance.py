"""A step that draws random numbers by torch is refused: they would depend on the order of the work.

Whether torch's generators have moved is looked at once a run for every step, whatever the mode. Another thread may
have moved them as well: so a step that is suspected is taken once more, and what it does is watched.
"""

from __future__ import annotations

from traceback import walk_stack
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from descant.errors import SettingError
from descant.execution.base import Execution
from descant.execution.batches import Schedule
from descant.execution.captured import run
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
    if not all(map(torch.equal, before, generators(device))):
        _refuse_draws(hook, step, execution, begin, start, schedules)
    execution.watched.add(hook)
    return walked


def generators(device: torch.device) -> list[Tensor]:
    """The states of torch's own generators, of the processor and of a GPU; nothing waits for it."""
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def _refuse_draws(
    hook: str, step: Step, execution: Execution, begin: int, start: Start, schedules: list[Schedule]
) -> None:
    sources, active = tuple(schedule.at(begin) for schedule in schedules), start.left.to(start.met.device) > begin
    with Drawing() as seen:
        advance(step, execution, start.x, start.statistics, sources, active, start.rows)
    if seen.drawn:
        raise SettingError(
            f"the hook {hook} draws random numbers (torch: {seen.drawn[0][0]}), which would depend on the order of "
            "the work: draw them by address in the hook client, as in "
            "local.ctx.each(local.clients).normal('noise', (d,)), and hand them to local.run as a tensor after x"
        )


class Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the names of the operations that draw from torch's own generators, and the calls that led to them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[tuple[str, list[FrameType]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and (kwargs or {}).get("generator") is None:
            self.drawn.append((func.overloadpacket.__name__, [frame for frame, _ in walk_stack(None)]))
        return func(*args, **(kwargs or {}))
