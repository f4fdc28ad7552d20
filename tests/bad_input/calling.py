"""The command line in this process, so that hundreds of calls are quick."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from typer.main import get_command

from descant.cli import main
from descant.cli.main import TRACEBACK

# The commands and their options, made of the functions' signatures once: that takes longer than most calls.
parsed = cache(get_command)

GOOD = """\
data: {name: synthetic, clients: 3, samples: 12, dim: 4, classes: 3}
model: linear
method: {name: fedavg, steps: 1}
rounds: 1
"""
COMPARISON = (
    "data: {name: synthetic, clients: 3, samples: 12, dim: 4, classes: 3}\nmethods: [fedavg, ditto]\nrounds: 1\n"
)


class Done(NamedTuple):
    """What a command left: its exit status, and what it printed."""

    status: int
    out: str
    err: str


def descant(*arguments: str, cwd: Path) -> Done:
    """Call the program; an exception that leaves it is the test's failure."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    here = mock.patch.object(sys, "argv", ["descant", *arguments])
    with _restored(cwd), here, mock.patch("typer.main.get_command", parsed):
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0
    return Done(status, out.getvalue(), err.getvalue())


@contextmanager
def _restored(cwd: Path) -> Iterator[None]:
    """Go to a folder, and leave everything that the program changes as it was."""
    before, path = os.getcwd(), list(sys.path)
    os.chdir(cwd)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextmanager
def without_training() -> Iterator[None]:
    """Everything but the training itself: a run that would begin ends here, with status 0."""
    with mock.patch("descant.experiment.simulate._carry_out", side_effect=SystemExit(0)):
        yield


def refused(done: Done, *named: str) -> None:
    """The command said in one line what is wrong, by name, and nothing of Python's."""
    assert done.status == 2, done
    assert done.err.startswith("descant: ") and "Traceback" not in done.err and TRACEBACK not in done.err, done.err
    assert not named or any(name in done.err for name in named), f"none of {named} is named: {done.err}"
