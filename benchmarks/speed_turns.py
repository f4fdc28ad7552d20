"""A contender trains a round when it is its turn: the side of the contender, a process of its own.

It reads how many rounds to train from its standard input, a number a line, and answers each with a line of JSON:
the seconds that every round took. The first round's seconds hold all that comes before it, such as compiling.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from speed_shapes import SHAPES, Shape, first_model, read_data
from torch import Tensor, nn


class Turns:
    """The clock of a contender, who calls `begin` once and `trained` after every round."""

    def __init__(self, **about: Any) -> None:
        self.about = {"python": platform.python_version(), "torch": torch.__version__} | about
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print is no answer
        self._seconds: list[float] = []  # of the rounds of this turn
        self._asked, self._began = 0, perf_counter()

    def begin(self) -> None:
        self._wait()

    def trained(self) -> None:
        self._seconds.append(perf_counter() - self._began)
        if len(self._seconds) == self._asked:
            self._answers.write(json.dumps({"seconds": self._seconds, "about": self.about}) + "\n")
            self._answers.flush()
            self._wait()
        else:
            self._began = perf_counter()

    def _wait(self) -> None:
        asked = sys.stdin.readline()
        if not asked.strip():
            raise SystemExit(0)
        self._asked, self._seconds = int(asked), []
        self._began = perf_counter()


@dataclass(frozen=True)
class Job:
    """What a contender is to train: a shape, and its data."""

    shape: Shape
    folder: Path

    def data(self) -> tuple[Tensor, Tensor]:
        return read_data(self.shape, self.folder)

    def model(self) -> nn.Module:
        return first_model(self.shape)


def serve(contender: Callable[[Job, Turns], None], **about: Any) -> None:
    """Run a contender on the job that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=list(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    contender(Job(SHAPES[arguments.shape], arguments.folder), Turns(**about))
