"""Going on with an interrupted run: what comes out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.engine import Record, Simulation
from descant.errors import ResumeError
from descant.experiment.commits import Commits
from descant.experiment.grid import comparison
from descant.experiment.settings import RunSettings
from descant.sealed import read_json, write_json
from tests import held
from tests.experiment.resumable import SETTINGS, begin, federation, new_task
from tests.interrupted import assert_same, assert_same_results, interrupt


@pytest.fixture
def data() -> dc.FederatedData:
    return federation()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings", [{"commit": 2}, {"commit": 100}, {"store": "disk"}, {"commit": 1, "own_start": True}]
)
def test_an_interrupted_run_goes_on_to_where_the_unbroken_one_ends(
    data: dc.FederatedData, tmp_path: Path, settings: dict[str, Any]
) -> None:
    unbroken = begin(data, tmp_path / "unbroken", stop=None, **settings)
    begin(data, tmp_path / "run", **settings)
    rounds: list[int] = []
    threads = torch.get_num_threads()
    resumed = dc.resume(tmp_path / "run", new_task(), data, progress=lambda r: rounds.append(r.round))
    assert torch.get_num_threads() == threads
    assert min(rounds) == {2: 4, 1: 6, None: 6, 100: 0}[settings.get("commit")], "what follows the last commit"
    assert unbroken is not None
    assert_same(resumed, unbroken)
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        f.name for f in (tmp_path / "unbroken").iterdir()
    }
    assert dc.load(tmp_path / "run").clients.equals(unbroken.clients)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["loop", "auto", pytest.param("compile", marks=pytest.mark.slow)])
def test_a_run_goes_on_in_the_mode_that_it_was_begun_in(tmp_path: Path, mode: str) -> None:
    settings = RunSettings.of(SETTINGS | {"mode": mode, "commit": 3})
    unbroken = settings.execute(tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        settings.execute(tmp_path / "run", progress=interrupt(5))
    begun = json.loads((tmp_path / "run" / "start.json").read_text())["config"]["execution"]
    resumed = dc.resume(tmp_path / "run")
    assert resumed.config["execution"] == begun | {"fallbacks": []}
    assert mode == "auto" or begun["mode"] == mode
    if begun["mode"] == unbroken.config["execution"]["mode"]:  # auto may have measured otherwise
        resumed.config["execution"] = unbroken.config["execution"]
        assert_same(resumed, unbroken)


@pytest.mark.slow
def test_a_run_on_disk_is_the_run_in_memory(data: dc.FederatedData, tmp_path: Path) -> None:
    memory = begin(data, tmp_path / "memory", stop=None)
    disk = begin(data, tmp_path / "disk", stop=None, store="disk")
    assert memory is not None and disk is not None
    disk.config["store"] = "memory"
    assert_same(disk, memory)
    assert json.loads((tmp_path / "disk" / "run.json").read_text())["clients"] == "clients/leaves.json"
    assert torch.equal(
        *(torch.nn.utils.parameters_to_vector(r.personal(1, round="last").parameters()) for r in (memory, disk))
    )


@pytest.mark.slow
def test_restoring_twice_changes_nothing(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = begin(data, tmp_path / "unbroken", stop=None, store="disk")
    begin(data, tmp_path / "run", store="disk")
    restore = Commits.restore

    def twice(self: Commits, simulation: Simulation) -> list[Record]:
        restore(self, simulation)
        return restore(self, simulation)

    monkeypatch.setattr(Commits, "restore", twice)
    assert unbroken is not None
    assert_same(dc.resume(tmp_path / "run", new_task(), data), unbroken)


@pytest.mark.slow
def test_records_beyond_the_commit_are_discarded(data: dc.FederatedData, tmp_path: Path) -> None:
    unbroken = begin(data, tmp_path / "unbroken", stop=None, commit=2)
    begin(data, tmp_path / "run", commit=2)
    journal = tmp_path / "run" / "journal"
    (journal / "segment-00000002.safetensors").write_bytes(b"half a segment")
    (journal / ".commit-00000006.safetensors.1.tmp").write_bytes(b"half a commit")
    assert unbroken is not None
    assert_same(dc.resume(tmp_path / "run", new_task(), data), unbroken)


def test_a_collapsed_run_is_resumed_to_its_collapse(data: dc.FederatedData, tmp_path: Path) -> None:
    method = dc.methods.FedProx(lr=1e4, mu=1e4, steps=3)  # which grows by 1e8 a step

    def run(name: str, progress: Any = None) -> dc.Run:
        how: dict[str, Any] = {"rounds": 8, "store": "disk", "mode": "vmap", "progress": progress}
        return dc.simulate(new_task(), data, method, out=tmp_path / name, **how)

    collapsed = run("unbroken")
    assert collapsed.collapse is not None and collapsed.collapse.round > 1

    def stop(record: Record) -> None:
        if record == collapsed.collapse:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("run", stop)
    resumed = dc.resume(tmp_path / "run", new_task(), data)
    assert resumed.collapse == collapsed.collapse
    assert_same(resumed, collapsed)


def test_a_run_from_settings_is_rebuilt_from_them_alone(tmp_path: Path) -> None:
    settings = RunSettings.of(SETTINGS | {"commit": 1})
    unbroken = settings.execute(tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        settings.execute(tmp_path / "run", progress=interrupt(3))
    assert_same(dc.resume(tmp_path / "run"), unbroken)
    assert RunSettings.of(dc.load(tmp_path / "run").config["settings"]) == settings


def test_an_unfinished_cell_of_a_grid_is_resumed(tmp_path: Path) -> None:
    grid = {k: v for k, v in SETTINGS.items() if k != "method"} | {
        "methods": {"a": SETTINGS["method"]},
        "commit": 1,
    }
    ((_, unbroken),) = comparison(grid, tmp_path / "unbroken").run()

    def stop(cell: Any, record: Record) -> None:
        interrupt(3)(record)

    with pytest.raises(KeyboardInterrupt):
        list(comparison(grid, tmp_path / "grid").run(stop))
    rounds: list[int] = []
    ((cell, run),) = comparison(grid, tmp_path / "grid").run(lambda cell, record: rounds.append(record.round))
    assert min(rounds) == 4, "round 3 was committed, and is not evaluated"
    assert_same_results(run, unbroken)
    for held_by in (held.personal, held.shared):  # both were read back from their folders
        assert torch.equal(held_by(run), held_by(unbroken))

    with pytest.raises(KeyboardInterrupt):
        list(comparison(grid, tmp_path / "old").run(stop))
    path = tmp_path / "old" / cell.key / "start.json"
    start, _ = read_json(path)
    start["config"]["versions"]["torch"] = "0.0.1"
    write_json(path, start)
    with pytest.raises(ResumeError, match=r"begun with torch 0\.0\.1"):  # its rounds are not lost without a word
        list(comparison(grid, tmp_path / "old").run())


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_the_command_line_resumes(tmp_path: Path) -> None:
    def descant(*arguments: str) -> list[str]:
        return [sys.executable, "-c", "from descant.cli import main; main()", *arguments]

    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(SETTINGS | {"rounds": 150, "commit": 1}))  # JSON is YAML
    folder = tmp_path / "out"
    running = subprocess.Popen(
        descant("run", str(file), "-o", str(folder), "-q"), stderr=subprocess.PIPE, text=True
    )
    while not list(folder.glob("journal/commit-*")):
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130 and f"interrupted; go on with: descant resume {folder}" in said, said
    refused = subprocess.run(
        descant("run", str(file), "-o", str(folder)), capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2 and "descant resume" in refused.stderr and "--overwrite" in refused.stderr
    done = subprocess.run(descant("resume", str(folder), "-q"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "chosen on valid" in done.stdout and len(dc.load(folder).rounds) == 150
