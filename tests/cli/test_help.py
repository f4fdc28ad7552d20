"""Help: plain, at once, and with completion; a long grid that shows the cell at work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from descant.cli import progress
from descant.cli.app import app
from descant.engine import Collapse
from descant.experiment import Run
from descant.experiment.cells import Cell
from descant.experiment.grid import Grid, comparison
from descant.kinds import CATALOG
from descant.version import __version__

COMMANDS = [(), *((name,) for name in get_command(app).commands), ("data", "fetch"), ("data", "show")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_help_has_a_stray_backslash(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"])
    assert done.exit_code == 0 and "Usage" in done.output
    assert "\\" not in done.output


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["--help", "compare --help", "--version", "--show-completion bash"])
def test_what_needs_no_model_does_not_wait_for_torch(command: str) -> None:
    code = (
        "import sys\nfrom descant.cli import main\n"
        f"sys.argv[1:] = {command.split()!r}\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'numpy', 'polars', 'altair', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "descant", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == __version__
    done = subprocess.run(
        [sys.executable, "-m", "descant", "run", "no.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("descant: ")


def test_list_alone_lists_what_can_be_listed() -> None:
    done = CliRunner().invoke(app, ["list"])
    assert done.exit_code == 0
    assert all(kind in done.output for kind in CATALOG) and "ditto" in done.output
    names = json.loads(CliRunner().invoke(app, ["list", "--json"]).output)
    assert names["aggregators"] == list(CATALOG["aggregators"])


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


class _Pretended(Grid):
    """A grid that pretends to have run."""

    def run(self, progress: Any = None) -> Iterator[tuple[Cell, Run]]:
        for cell in self.cells:
            progress(cell, Collapse(round=1, why="pretended"))
            yield cell, None  # type: ignore[misc]


def test_a_long_grid_shows_the_cell_at_work_and_lines_for_those_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, width=100, height=8, file=StringIO())
    monkeypatch.setattr(progress, "err", screen)
    grid = comparison({"data": "digits", "rounds": 2, "methods": {"Ditto": "ditto"}, "seeds": 40})
    with progress.Progress() as shown:
        for at, _ in enumerate(shown.run(_Pretended(grid.cells))):
            bars = shown.screen._bars.tasks  # type: ignore[attr-defined]
            assert len(bars) <= 2, "bars pile up, and the last ones have no room"
            assert bars[0].completed == at + 1
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert all(f"seed {seed} ({seed + 1} of 40)" in text for seed in range(40))
