"""Progress: bars on a terminal, text that updates in a notebook, lines elsewhere, and nothing unless asked for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import descant as dc
from descant.engine import Record, RoundRecord
from descant.experiment import screens
from descant.experiment.screens import Lines, Notebook, screen_here
from descant.experiment.table import human_bytes
from tests.interrupted import interrupt

DATA = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)
SETTINGS: dict[str, Any] = {"rounds": 3, "mode": "vmap"}

ON_A_TERMINAL = """
import torch, descant as dc
data = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)
task = dc.Task(torch.nn.Linear(4, 3))
dc.simulate(task, data, "local", rounds=3, mode="vmap", label="alone", progress=True)
dc.compare(task, data, ["local", "fedavg"], rounds=2, mode="vmap", progress=True)
"""


@cache
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Linear(4, 3))


@pytest.mark.parametrize("progress", [None, False])
def test_a_run_is_silent_unless_asked(progress: Any, capfd: pytest.CaptureFixture[str]) -> None:
    dc.simulate(task(), DATA, "local", progress=progress, **SETTINGS)
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_the_end_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = dc.simulate(task(), DATA, "fedavg", progress=True, label="mine", **SETTINGS)
    out, err = capsys.readouterr()
    assert out == "" and err == f"mine: round 3 of 3, {known(run)}\n"


def known(run: dc.Run) -> str:
    """What a bar says of a run that has ended."""
    figures = run.summary()
    sent = human_bytes(figures["bytes_up"] + figures["bytes_down"])
    return f"{figures['personal.test_accuracy.mean@last']:.3f} on test, {sent}"


def test_a_function_is_called_with_every_record() -> None:
    records: list[Record] = []
    dc.simulate(task(), DATA, "local", progress=records.append, **SETTINGS)
    assert [record.round for record in records if isinstance(record, RoundRecord)] == [1, 2, 3]


def test_a_line_comes_now_and_then_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(screens, "monotonic", lambda: now)
    said: list[str] = []
    with Lines(said.append) as screen:
        shown = screen.begin("mine", 100)
        for round in range(1, 31):
            now += 1.0
            shown.advance(round, "0.5 on test")
            screen.update(shown)
    assert said == [
        "mine: round 11 of 100, 0.5 on test, 89 s left",
        "mine: round 22 of 100, 0.5 on test, 78 s left",
        "mine: round 30 of 100, 0.5 on test",  # it has ended here
    ]


def test_the_time_left_of_a_resumed_run_counts_the_rounds_that_were_played_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(screens, "monotonic", lambda: now)
    shown = Lines(print).begin("mine", 100)
    shown.advance(0)
    for round in (51, 52):
        now += 2.0
        shown.advance(round)
    assert shown.left == 2.0 * 48


class Display:
    """IPython's display in a notebook, as far as it is used."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        assert raw and display_id and not self.shown, "one place, that is updated"
        return self.update(content, raw=raw)

    def update(self, content: dict[str, str], *, raw: bool) -> Display:
        assert raw
        self.shown.append(content["text/plain"])
        return self


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Display:
    """As in a kernel of IPython."""
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = found = Display()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(screens, "_BLINK", 0.0)
    return found


def test_a_notebook_shows_text_that_is_updated(notebook: Display, capfd: pytest.CaptureFixture[str]) -> None:
    dc.simulate(task(), DATA, "local", progress=True, label="mine", **SETTINGS)
    assert isinstance(screen_here(), Notebook) and capfd.readouterr() == ("", "")
    bars = [re.match(r"(█*)(░*) mine: round (\d) of 3", text) for text in notebook.shown]
    assert all(bar is not None and len(bar[1] + bar[2]) == 30 for bar in bars)
    assert [int(bar[3]) for bar in bars if bar] == sorted(int(bar[3]) for bar in bars if bar)
    assert notebook.shown[-1].startswith("█" * 30 + " mine: round 3 of 3, ")


def test_a_comparison_in_a_notebook_leaves_a_line_a_run(notebook: Display) -> None:
    dc.compare(task(), DATA, ["local", "fedavg"], seeds=2, progress=True, **SETTINGS)
    *lines, whole = notebook.shown[-1].split("\n")
    assert [line.split(":")[0] for line in lines] == [
        "local, seed 0 (1 of 4)",
        "local, seed 1 (2 of 4)",
        "fedavg, seed 0 (3 of 4)",
        "fedavg, seed 1 (4 of 4)",
    ]
    assert whole == "█" * 30 + " all runs: run 4 of 4"


def test_a_terminal_of_ipython_is_a_terminal(notebook: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    assert not isinstance(screen_here(), Notebook)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_a_terminal_has_bars(tmp_path: Path) -> None:
    import pty

    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30", "DESCANT_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", ON_A_TERMINAL]
    process = subprocess.Popen(command, stderr=child, env=environment)
    os.close(child)
    seen = b""
    while chunk := _read(parent):
        seen += chunk
    os.close(parent)
    assert process.wait(60) == 0
    text = seen.decode()
    assert "alone" in text and "━" in text and "3/3" in text
    assert "fedavg, seed 0 (2 of 2): " in text and "all runs" in text and "2/2" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


@pytest.mark.slow
def test_rich_is_not_imported_unless_a_terminal_asks_for_it() -> None:
    code = ON_A_TERMINAL + "\nimport sys\nprint('rich' in sys.modules, 'IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False" and "alone: round 3 of 3" in done.stderr


def test_resume_shows_progress_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task(), DATA, "fedavg", progress=interrupt(2), commit=1, out=tmp_path, **SETTINGS)
    run = dc.resume(tmp_path, task(), DATA, progress=True)
    assert capsys.readouterr().err == f"fedavg: round 3 of 3, {known(run)}\n", (
        "the bytes are those of the whole run"
    )
