"""A step as a CUDA graph: whatever kernels it takes, the processor launches it at once.

The step of a small model is a few dozen short kernels, and a GPU does them faster than Python can ask for them. So
one step is captured, compiled or as it is, with all that changes from step to step (the minibatch, who is still at
work), and then replayed. Graphs read and write the tensors that they were captured with: what a run of steps starts
from is copied there, and what it ends with is copied from there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from descant.execution.base import Execution
from descant.execution.batches import Schedule
from descant.execution.compiled import Compile
from descant.execution.programs import reason
from descant.execution.sources import Source, zeros
from descant.execution.steps import Steps, advance
from descant.execution.walk import Start, Walked, planned, walk
from descant.methods.base import Step

CAPTURES = ("cuda",)  # kinds of devices
_LOOK = 8  # steps after which it is asked whether anybody is still at work, where a rule may end them early


def run(step: Step, execution: Execution, begin: int, end: int, start: Start, schedules: list[Schedule]) -> Walked:
    """The steps from `begin` to `end`: by a graph where there is a GPU that can capture the step, else singly."""
    execution = execution.on(all(schedule.even for schedule in schedules))
    named = Steps(step, execution, _advance).identity if start.met.device.type in CAPTURES else None
    if named is None or not isinstance(execution, Compile):
        return walk(step, execution, begin, end, start, schedules)
    sources = [Source.of(schedule, begin) for schedule in schedules]
    kinds = (_kinds(start[:4], shared=False), _kinds(start.rows), tuple(source.kind for source in sources))
    key = (named, kinds)
    found = execution.programs.get(key)
    moved = isinstance(found, _Graph) and not found.reads(sources)
    if found is None or moved:
        try:
            found = execution.programs[key] = _Graph(step, execution, start, sources, copies=moved)
        except Exception as error:  # of many kinds: an operation that cannot be compiled, or not be captured
            if isinstance(error, torch.OutOfMemoryError):
                raise
            execution.note(f"a step could not be captured as a CUDA graph: {reason(error)}")
            found = execution.programs[key] = partial(walk, step, execution)
    if isinstance(found, _Graph):
        return found(begin, end, start, schedules, sources)
    walked: Walked = found(begin, end, start, schedules)
    return walked


class _Held(NamedTuple):
    """What a graph reads, and what it changes in place."""

    x: Any
    statistics: Tensor
    met: Tensor
    taken: Tensor
    step: Tensor  # [1] the number of the step
    begin: Tensor  # [1] the first of those whose minibatches were drawn in one go
    left: Tensor
    rows: tuple[Tensor, ...]


class _Graph:
    """A step of one kind, captured."""

    def __init__(
        self, step: Step, execution: Compile, start: Start, sources: list[Source], copies: bool = False
    ) -> None:
        counts = zeros(start.met).long()
        self.held = _Held(
            x=_each(zeros, start.x),
            statistics=zeros(start.statistics),
            met=zeros(start.met),
            taken=counts,
            step=counts.new_zeros(1),
            begin=counts.new_zeros(1),
            left=counts.clone(),
            rows=tuple(_blank(row) for row in start.rows),
        )
        self.copies = copies  # attackers change the examples that they train on from round to round
        self.sources = [source.held(copies) for source in sources]
        # What it holds already is not copied again: launches are what a short round waits for.
        self._taken: list[Source | None] = [None] * len(sources)
        self._left: int | None = 0  # of all clients alike, if they are
        self._begin = 0
        self._copy_from(start)  # real numbers, and nobody is at work
        self._take(sources)
        self.held.step.fill_(self._begin)
        program = execution.program(partial(_advance, step, execution))
        self.replay, found = _capture(partial(program, self.held, tuple(self.sources)), execution)
        self.gradients: tuple[int, ...] = found[0]
        self.until: bool = found[1]

    def reads(self, sources: list[Source]) -> bool:
        """Whether it can read these sources: where it copies nothing, the examples that it was captured with."""
        pairs = zip(self.sources, sources, strict=True)
        return self.copies or all(
            mine.same or (mine.inputs is its.inputs and mine.targets is its.targets) for mine, its in pairs
        )

    def _copy_from(self, start: Start) -> None:
        """Let the clients' x, their running statistics and their rows be these."""
        here, there = ((of.x, of.statistics, of.rows) for of in (self.held, start))
        _copy(list(zip(_leaves(here), _leaves(there), strict=True)))

    def _start_from(self, begin: int, end: int, start: Start) -> None:
        """Make all but the minibatches ready for the steps from `begin` on."""
        held = self.held
        self._copy_from(start)
        if self.until:  # or nobody has met a rule, and nothing was counted
            held.met.copy_(start.met)
            held.taken.zero_()
        left = end if start.alike else _same(start.left)
        if left is None:
            held.left.copy_(start.left, non_blocking=True)
        elif left != self._left:  # a copy from the processor's memory would wait until the GPU has time
            held.left.fill_(left)
        self._left = left
        held.step.fill_(begin)

    def _take(self, drawn: list[Source]) -> None:
        """Read these minibatches from now on."""
        for i, (mine, its) in enumerate(zip(self.sources, drawn, strict=True)):
            mine.take(its, self._taken[i])
            self._taken[i] = its._replace(positions=mine.positions)  # they are the longest, and soon others
        if drawn[0].begin != self._begin:
            self._begin = drawn[0].begin
            self.held.begin.fill_(self._begin)

    def __call__(
        self, begin: int, end: int, start: Start, schedules: list[Schedule], drawn: list[Source]
    ) -> Walked:
        """The steps from `begin` to `end`; what is `drawn` are the minibatches that they begin with."""
        held = self.held
        self._start_from(begin, end, start)
        s = begin
        while s < end:
            drawn = drawn if s == begin else [Source.of(schedule, s) for schedule in schedules]
            self._take(drawn)
            for _ in range(s, min([end, *(source.end or end for source in drawn)])):
                self.replay()
                s += 1
                if self.until and s % _LOOK == 0 and not bool(((held.left > s) & ~held.met).any()):
                    end = s
                    break
        x, statistics = _each(torch.clone, held.x), held.statistics.clone()
        if self.until:
            return Walked(x, statistics, held.met.clone(), held.taken.cpu(), self.gradients)
        return Walked(x, statistics, None, planned(start.left, begin, end), self.gradients)


def _capture(program: Callable[[], Any], execution: Compile) -> tuple[Callable[[], None], Any]:
    """What repeats a program, and what it returns. It is run here: nobody is at work yet, and nothing changes."""
    beside = _beside(torch.cuda.current_device())
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(2):
            found = program()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    # Graphs run one after the other, and what they leave lies outside: they can share the memory they work in.
    with (
        _garbage_waits(),
        torch.cuda.graph(graph, pool=execution.pool, stream=beside, capture_error_mode="thread_local"),
    ):
        program()
    return graph.replay, found


@cache
def _beside(device: int) -> Any:
    """The stream of a GPU that all captures use: torch keeps memory for the products of every stream, for ever."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """Collect no garbage here: a graph that is among it cannot be freed while another is captured, and stays."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _advance(
    step: Step, execution: Compile, held: _Held, sources: tuple[Source, ...]
) -> tuple[tuple[int, ...], bool]:
    """A step on what a graph holds, in place: how many gradients of each draw it took, and if it has a rule."""
    active = (held.left > held.step) & ~held.met
    drawn = tuple(source.at(held.step - held.begin) for source in sources)
    stepped = advance(step, execution, held.x, held.statistics, drawn, active, held.rows)
    for old, new in zip(_leaves((held.x, held.statistics)), _leaves((stepped.x, stepped.statistics)), strict=True):
        old.copy_(new)
    if stepped.met is not None:
        held.met.logical_or_(stepped.met)
        held.taken.add_(active)
    held.step.add_(1)
    return stepped.gradients, stepped.met is not None


def _same(numbers: Tensor) -> int | None:
    """The number that all of some are, in the processor's memory."""
    least, most = torch.aminmax(numbers)
    return int(most) if bool(least == most) else None


def _kinds(tree: Any, shared: bool = True) -> Any:
    """What a graph is captured for, of tensors [K, ...]; what is `shared` by all clients makes a difference."""
    if isinstance(tree, Tensor):
        return tree.dtype, tree.shape, shared and _shared(tree)
    return tuple(_kinds(leaf, shared) for leaf in tree)


def _shared(tensor: Tensor) -> bool:
    """Whether all clients have the same row, kept once."""
    return tensor.stride(0) == 0 and len(tensor) > 1


def _blank(tensor: Tensor) -> Tensor:
    """A tensor of the same kind, for a graph to read; a row that all clients share is kept once there, too."""
    return zeros(tensor[:1]).expand_as(tensor) if _shared(tensor) else zeros(tensor)


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy the second of each pair into the first."""
    for mine, its in pairs:
        if not mine.numel():  # a model without running statistics
            continue
        if _shared(mine):
            mine[:1].copy_(its[:1])
        else:
            mine.copy_(its)


def _leaves(tree: Any) -> list[Tensor]:
    return [tree] if isinstance(tree, Tensor) else [leaf for branch in tree for leaf in _leaves(branch)]


def _each(of: Any, tree: Any) -> Any:
    return of(tree) if isinstance(tree, Tensor) else tuple(_each(of, leaf) for leaf in tree)
