"""Contenders by turns: A B A B, so that whatever slows the machine down hits all of them alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from threading import Timer
from typing import Any, Self

_HERE = Path(__file__).parent
_PATIENCE = 1800.0  # seconds that an answer may take
_TURN = 1.0  # seconds of a turn, about: a round at least


@dataclass(frozen=True)
class Contender:
    """A module that trains by turns (`speed_turns`), the interpreter it needs, and what else it is told."""

    label: str
    module: str
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    unavailable: str = ""  # why it cannot run here


@dataclass
class Figures:
    """What a contender took."""

    label: str
    start: float | None = None  # seconds up to the end of the first round: compiling, choosing, warming up
    seconds: list[float] = field(default_factory=list)  # of every round that counts
    about: dict[str, Any] = field(default_factory=dict)
    failed: str = ""

    def quartiles(self) -> tuple[float, float, float] | None:
        """Of the seconds a round: the middle one is the median."""
        if len(self.seconds) < 2:
            return (self.seconds[0],) * 3 if self.seconds else None
        low, median, high = quantiles(self.seconds, n=4, method="inclusive")
        return low, median, high


@dataclass(frozen=True)
class Effort:
    """When a contender has trained enough: so many seconds, and so many rounds."""

    seconds: float
    rounds: int

    def reached(self, seconds: Sequence[float]) -> bool:
        return len(seconds) >= self.rounds and sum(seconds) >= self.seconds


class FailedError(Exception):
    """A contender stopped, and its last words."""


class Process:
    """A contender at work."""

    def __init__(self, contender: Contender, case: str, folder: Path, threads: int) -> None:
        self.about: dict[str, Any] = {}  # what it says of itself
        self._scratch = tempfile.TemporaryDirectory(prefix="speed-")
        scratch = Path(self._scratch.name)
        self._errors = (scratch / "stderr").open("w+")
        count = str(threads)
        environment = os.environ | {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
            "CUDA_VISIBLE_DEVICES": "",
            "PFL_PYTORCH_DEVICE": "cpu",  # or pfl looks for a device at every minibatch
            "DESCANT_CACHE": str(scratch / "descant"),  # "auto" measures, on the machine as it is now
            "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),  # nobody finds compiled what another compiled
        }
        command = [contender.python, "-m", contender.module, case, str(folder), count, *contender.arguments]
        self._process = subprocess.Popen(
            command,
            cwd=_HERE,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it: an empty input is its sign to stop."""
        try:
            self._process.communicate(timeout=20)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._scratch.cleanup()

    def train(self, rounds: int) -> list[float]:
        """The seconds of each of the next rounds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        alarm = Timer(_PATIENCE, self._process.kill)
        alarm.start()
        try:
            self._process.stdin.write(f"{rounds}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            alarm.cancel()
        if not answer:
            raise FailedError(self._last_words())
        said = json.loads(answer)
        self.about = said["about"]
        seconds: list[float] = said["seconds"]
        return seconds

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"it stopped with exit status {status}"


def contest(
    contenders: Sequence[Contender], case: str, folder: Path, threads: int, effort: Effort
) -> list[Figures]:
    """Start every contender, warm it up alone, then let them train by turns until all have trained enough."""
    figures = {contender.label: Figures(contender.label, failed=contender.unavailable) for contender in contenders}
    at_work: dict[str, tuple[Process, int]] = {}  # with the rounds of a turn
    with ExitStack() as stack:
        for contender in contenders:
            if contender.unavailable:
                continue
            found, process = figures[contender.label], Process(contender, case, folder, threads)
            stack.enter_context(process)
            try:
                found.start = process.train(1)[0]
                turn = max(1, round(min(_TURN, effort.seconds) / process.train(1)[0]))
                if turn > 1:
                    process.train(turn)
                at_work[contender.label] = process, turn
            except FailedError as error:
                found.failed = str(error)
            found.about = process.about
        while waiting := [label for label in at_work if not effort.reached(figures[label].seconds)]:
            for label in waiting:
                process, turn = at_work[label]
                try:
                    figures[label].seconds += process.train(turn)
                except FailedError as error:
                    figures[label].failed = str(error)
                    del at_work[label]
                figures[label].about = process.about
    return list(figures.values())
