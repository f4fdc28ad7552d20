"""Several processes on one grid share its cells: none is run twice, and none waits for another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from descant.engine import Record, RoundRecord
from descant.errors import BusyError
from descant.experiment import finished
from descant.experiment.cells import Cell
from descant.experiment.grid import Grid, comparison
from descant.experiment.lock import Lock

VALUES: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 6, "samples": 30},
    "methods": {"alone": {"name": "local", "steps": 2}, "together": {"name": "fedavg", "steps": 2}},
    "seeds": [3, 4],
    "rounds": 3,
    "mode": "vmap",
    "commit": 1,
}


def lock(grid: Grid, cell: int) -> Lock:
    assert grid.folder is not None
    out = grid.folder / grid.cells[cell].key
    out.mkdir(parents=True, exist_ok=True)
    return Lock(out)


def test_a_cell_that_another_is_at_work_on_is_passed_over_and_taken_when_it_is_free(tmp_path: Path) -> None:
    grid = comparison(VALUES, tmp_path)
    held, order = lock(grid, 1), []
    for cell, _ in grid.run():
        order.append(grid.cells.index(cell))
        if len(order) == 3:
            held.release()  # the other process has died
    assert order == [0, 2, 3, 1]


def test_a_cell_that_another_has_finished_meanwhile_is_read(tmp_path: Path) -> None:
    grid, ran = comparison(VALUES, tmp_path), []
    held = lock(grid, 0)

    def note(cell: Cell, record: Record) -> None:
        ran.append(grid.cells.index(cell))

    order = []
    for cell, _ in grid.run(note):
        order.append(grid.cells.index(cell))
        if len(order) == 3:
            held.release()
            list(Grid(grid.cells[:1], tmp_path).run())  # the other process
    assert order == [1, 2, 3, 0] and 0 not in ran


def test_what_others_are_still_at_work_on_is_named_at_the_end(tmp_path: Path) -> None:
    grid = comparison(VALUES, tmp_path)
    held = [lock(grid, 0), lock(grid, 2)]
    found = []
    with pytest.raises(BusyError, match=r"on 2 of 4 runs in .*: 'alone' \(seed 3\), 'together' \(seed 3\); call"):
        for cell, _ in grid.run():
            found.append(grid.cells.index(cell))
    assert found == [1, 3]
    for each in held:
        each.release()
    assert len(list(grid.run())) == 4


def test_a_cell_that_is_taken_between_the_look_and_the_lock_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins and ends a cell while this one reads its data."""
    grid = comparison(VALUES | {"seeds": [3]}, tmp_path)
    first: Any = type(grid.cells[0].settings)
    real, ran = first.federated_data, []

    def slow(settings: Any) -> Any:
        if not ran:
            ran.append(settings)
            list(Grid(grid.cells[:1], tmp_path).run())
        return real(settings)

    monkeypatch.setattr(first, "federated_data", slow)
    monkeypatch.setattr(Grid, "check", lambda grid: None)  # it reads the data too, before any cell has its turn
    assert [grid.cells.index(cell) for cell, _ in grid.run()] == [1, 0]


def descant(file: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from descant.cli import main; main()", "compare", str(file), *more]
    return subprocess.Popen(command, cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def written(tmp_path: Path, **changes: Any) -> tuple[Path, Grid]:
    values = VALUES | changes
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    return file, comparison(values, tmp_path / "runs" / "small")


SHARES = """
import sys, yaml
from pathlib import Path
from descant.engine import RoundRecord
from descant.errors import BusyError
from descant.experiment.grid import comparison

def note(cell, record):
    if isinstance(record, RoundRecord):
        print(cell.label, cell.seed, record.round, flush=True)

grid = comparison(yaml.safe_load(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
grid.cells[0].settings.federated_data()
print("ready", flush=True)
sys.stdin.readline()
try:
    list(grid.run(note))
except BusyError as error:
    print(error, file=sys.stderr)
"""


@pytest.mark.slow
def test_two_real_processes_share_the_work(tmp_path: Path) -> None:
    file, grid = written(tmp_path, seeds=4, rounds=20)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", SHARES, str(file), str(grid.folder)]
    both = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    played = [out.splitlines() for out, _ in said]
    assert all(played), "both had something to do"
    everything = Counter(line for lines in played for line in lines)
    assert len(everything) == 2 * 4 * 20 and set(everything.values()) == {1}, "every round of every cell, once"
    errors = [err for _, err in said if err]
    assert len(errors) <= 1 and all("other processes are still at work on 1 of 8 runs" in err for err in errors)
    assert all(finished(tmp_path / "runs" / "small" / cell.key) for cell in grid.cells)


@pytest.mark.slow
def test_a_process_that_is_done_before_the_others_says_so(tmp_path: Path) -> None:
    file, grid = written(tmp_path)
    held = lock(grid, 1)
    done = descant(file)
    out, err = done.communicate(timeout=300)
    assert done.returncode == 3 and out == "", err
    assert "'alone' (seed 4); call the same again" in " ".join(err.split()) and "Traceback" not in err
    held.release()
    done = descant(file)
    out, err = done.communicate(timeout=300)
    assert done.returncode == 0 and "alone" in out, err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_what_a_killed_process_had_begun_is_gone_on_with_by_the_other(tmp_path: Path) -> None:
    file, grid = written(tmp_path, seeds=1, rounds=60, evaluate=60)
    killed = descant(file, "--json")
    assert killed.stdout is not None
    for line in killed.stdout:
        if json.loads(line).get("round") == 10:
            os.kill(killed.pid, signal.SIGKILL)
            break
    killed.communicate(timeout=60)
    rounds: list[int] = []

    def note(cell: Cell, record: Record) -> None:
        if cell is grid.cells[0] and isinstance(record, RoundRecord):
            rounds.append(record.round)

    assert len(list(grid.run(note))) == 2
    assert rounds[0] > 1 and rounds[-1] == 60
