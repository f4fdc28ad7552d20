"""When rounds end, when enough of them were timed, and where the seconds of `benchmarks/gpu.py` go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median

import descant as dc
from descant.engine import RoundRecord

EVERY = 10  # rounds after which rows are evaluated
_LEAST = 5  # rounds that a median is taken of
_WARM = 2  # rounds after the first that are not timed, where they are quick
_SLOW = 0.5  # seconds: a round that takes longer shows nothing of what the first ones may have beside their steps

Ends = Callable[[list[float]], bool]  # whether a run is over, by when its rounds ended


def begins(marks: list[float]) -> int:
    """The place of the mark from which rounds are timed: the first one is when a run has been compiled."""
    slow = len(marks) > 1 and marks[1] - marks[0] > _SLOW
    return 0 if slow else _WARM


def enough(marks: list[float], rounds: int, seconds: float) -> bool:
    """Whether so many rounds were timed, or some of them in so many seconds."""
    timed = marks[begins(marks) :]
    passed = timed[-1] - timed[0] if timed else 0.0
    return len(timed) > rounds or (len(timed) > _LEAST and passed > seconds)


@dataclass
class Clock(dc.callbacks.Callback):
    """Notes when rounds end, and ends the run after some of them: `auto` is to choose as for a long one."""

    ends: Ends
    marks: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)  # seconds of each after a round

    @classmethod
    def of_row(cls, rounds: int, seconds: float) -> Clock:
        """One that ends a run when so many rounds were timed, or some in so many seconds."""
        return cls(partial(enough, rounds=rounds, seconds=seconds))

    def on_round(self, record: RoundRecord) -> dc.callbacks.Stop | None:
        # What the round left has been read here. The GPU draws the next round's minibatches: who waited for that
        # would time them one after the other.
        self.marks.append(time.perf_counter())
        return dc.callbacks.Stop("timed") if self.ends(self.marks) else None

    def on_evaluated(self, round: int, figures: dict[str, float]) -> None:
        if self.marks:
            self.evaluations.append(time.perf_counter() - self.marks[-1])

    @property
    def round_seconds(self) -> float:
        """Those of a median round. An evaluation comes after the mark of its round."""
        timed = enumerate(pairwise(self.marks), start=1)
        return median(b - a for r, (a, b) in timed if r > begins(self.marks) and r % EVERY)

    @property
    def with_evaluation(self) -> float:
        """Those of a round and its part of an evaluation; by its own time where too few rounds hold one."""
        timed = self.marks[begins(self.marks) :]
        if len(timed) > 2 * EVERY:
            return (timed[-1] - timed[0]) / (len(timed) - 1)
        return self.round_seconds + median(self.evaluations) / EVERY


class Spent:
    """Where the seconds of a row go, stage by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = time.perf_counter()

    def on(self, stage: str, until: float | None = None) -> None:
        """What has passed since the last stage, up to a time or now, went to this one."""
        now = time.perf_counter() if until is None else until
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now

    def on_run(self, marks: list[float]) -> None:
        """A run has ended, whose rounds ended at `marks`."""
        self.on("start and first round", marks[0])
        self.on(f"{len(marks) - 1} rounds", marks[-1])
        self.on("end")

    def __str__(self) -> str:
        took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.stages.items())
        return f"{sum(self.stages.values()):.1f} s: {took}"
