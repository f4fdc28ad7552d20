"""Going on with an interrupted run: what comes out, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.engine import Record, RoundRecord, Simulation
from descant.errors import ResumeError, SettingError
from descant.experiment import unfinished
from descant.experiment.commits import Commits
from descant.experiment.grid import comparison
from descant.experiment.settings import RunSettings
from descant.sealed import read_json, write_json

DATA = {"name": "synthetic", "clients": 20, "samples": 20, "dim": 4, "classes": 3}
SETTINGS: dict[str, Any] = {
    "data": DATA,
    "method": {"name": "ditto", "steps": 2, "batch": 4, "solver": {"name": "fedavg", "steps": 2, "batch": 4}},
    "rounds": 8,
    "cohort": 2,
    "evaluate": {"every": 2},
    "mode": "vmap",
}


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    return dc.data.synthetic(**{name: value for name, value in DATA.items() if name != "name"})


def new_task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)))


def interrupt(round: int) -> Callable[[Record], None]:
    """Ctrl-C after a round."""

    def progress(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == round:
            raise KeyboardInterrupt

    return progress


def begin(data: dc.FederatedData, out: Path, stop: int | None = 5, **settings: Any) -> dc.Run | None:
    """A run that is interrupted after a round, or not at all."""
    ditto = dc.methods.Ditto(lam=0.3, steps=2, solver=dc.methods.FedAvg(steps=2, batch=5))
    how: dict[str, Any] = {"rounds": 8, "cohort": 2, "evaluate": 2, "out": out, "mode": "vmap"} | settings
    if stop is None:
        return dc.simulate(new_task(), data, ditto, **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(new_task(), data, ditto, **how, progress=interrupt(stop))
    assert unfinished(out)
    return None


def assert_same(found: dc.Run, expected: dc.Run) -> None:
    assert found.rounds.drop("seconds").equals(expected.rounds.drop("seconds"))
    assert found.clients.equals(expected.clients)
    assert json.dumps(found.config) == json.dumps(expected.config)
    one, other = found._simulation, expected._simulation
    assert one is not None and other is not None
    for tree, wanted in ((one.server.state, other.server.state), (one.store.leaves, other.store.leaves)):
        torch.testing.assert_close(tree, wanted, rtol=0, atol=0, equal_nan=True)
    assert one.server.statistics.equal(other.server.statistics)


@pytest.mark.few(2)
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


def test_a_run_that_goes_on_needs_its_task_and_its_data(data: dc.FederatedData, tmp_path: Path) -> None:
    begin(data, tmp_path)
    with pytest.raises(ResumeError, match="hand in its task and its data"):
        dc.resume(tmp_path)
    with pytest.raises(ResumeError, match="hand in its task and its data"):
        dc.resume(tmp_path, new_task())
    other = dc.data.synthetic(**{k: v for k, v in DATA.items() if k != "name"} | {"seed": 1})
    with pytest.raises(ResumeError, match="begun with other data"):
        dc.resume(tmp_path, new_task(), other)
    with pytest.raises(ResumeError, match="begun with another model"):
        dc.resume(tmp_path, dc.Task(torch.nn.Linear(4, 3)), data)
    with pytest.raises(ResumeError, match="begun with task = "):
        dc.resume(tmp_path, dc.Task(new_task().model, buffers="local"), data)
    assert dc.resume(tmp_path, new_task(), data).summary()["rounds"] == 8, "a refusal harms nothing"


@pytest.mark.parametrize("package", ["descant", "torch"])
def test_a_run_of_another_version_is_refused(data: dc.FederatedData, tmp_path: Path, package: str) -> None:
    begin(data, tmp_path)
    start, _ = read_json(tmp_path / "start.json")
    start["config"]["versions"][package] = "0.0.1"
    write_json(tmp_path / "start.json", start)
    with pytest.raises(ResumeError, match=rf"begun with {package} 0\.0\.1"):
        dc.resume(tmp_path, new_task(), data)


def test_another_method_behind_the_same_name_is_refused(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(data, tmp_path)
    monkeypatch.setattr(
        import_module("descant.experiment.resume"),
        "build",
        lambda kind, spec: dc.methods.Local() if kind == "methods" else None,
    )
    with pytest.raises(ResumeError, match="begun with method = "):
        dc.resume(tmp_path, new_task(), data)


def test_a_folder_that_is_finished_or_empty_is_refused(data: dc.FederatedData, tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match="holds no run"):
        dc.resume(tmp_path, new_task(), data)
    begin(data, tmp_path, stop=None)
    with pytest.raises(ResumeError, match="holds a finished run"):
        dc.resume(tmp_path, new_task(), data)


def test_an_unfinished_run_is_not_overwritten_unasked(data: dc.FederatedData, tmp_path: Path) -> None:
    begin(data, tmp_path, store="disk")
    with pytest.raises(SettingError, match=r"unfinished run: go on with it \(descant resume .*overwrite"):
        begin(data, tmp_path, stop=None)
    fresh = begin(data, tmp_path, stop=None, overwrite=True)
    assert fresh is not None and fresh.summary()["rounds"] == 8 and not (tmp_path / "clients").exists()


def test_a_mistake_in_the_first_round_leaves_no_run_behind(data: dc.FederatedData, tmp_path: Path) -> None:
    def mistake(record: Record) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dc.simulate(new_task(), data, dc.methods.Local(steps=1), rounds=3, out=tmp_path, progress=mistake)
    assert not unfinished(tmp_path)


def test_two_processes_do_not_share_a_run(data: dc.FederatedData, tmp_path: Path) -> None:
    def at_once(record: Record) -> None:
        dc.simulate(new_task(), data, dc.methods.Local(steps=1), rounds=1, out=tmp_path, overwrite=True)

    with pytest.raises(SettingError, match="another process is at work"):
        dc.simulate(new_task(), data, dc.methods.Local(steps=1), rounds=1, out=tmp_path, progress=at_once)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"store": "disk"}, "store = 'disk'"),
        ({"store": "tape"}, "store = 'tape'"),
        ({"commit": 0}, "commit = 0"),
        ({"store": "disk", "commit": 3, "out": "run"}, "commit = 3"),
    ],
)
def test_a_bad_setting_is_named(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=message):
        dc.simulate(new_task(), data, dc.methods.Local(steps=1), rounds=1, **settings)


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
    assert_same(run, unbroken)

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
