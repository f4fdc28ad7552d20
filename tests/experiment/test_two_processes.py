"""Two processes that want the same folder: one of them gets it, and no finished run is replaced unasked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.errors import ResumeError, SettingError
from descant.experiment.journal import Journal

SLOW_TO_BEGIN = """
import sys, torch
import descant as dc
from descant.experiment.journal import Journal

out, seed = sys.argv[1], int(sys.argv[2])
journal = Journal.claim(out, overwrite=False)
print("claimed", flush=True)
sys.stdin.readline()  # the data takes a while to load
data = dc.data.synthetic(clients=5, samples=20, dim=4, classes=3)
method = dc.methods.Local(steps=1)
dc.simulate(dc.Task(torch.nn.Linear(4, 3)), data, method, rounds=2, seed=seed, mode="vmap", out=journal)
"""


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    return dc.data.synthetic(clients=5, samples=20, dim=4, classes=3)


def run(data: dc.FederatedData, out: Path | Journal, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    how: dict[str, Any] = {"rounds": 2, "mode": "vmap", "commit": 1} | settings
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), data, dc.methods.Local(steps=1), out=out, **how)


def stop(record: object) -> None:
    raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_a_run_that_was_finished_meanwhile_is_not_replaced(data: dc.FederatedData, tmp_path: Path) -> None:
    waiting = Journal.claim(tmp_path, overwrite=False)
    run(data, tmp_path, seed=1)
    before = contents(tmp_path)
    with pytest.raises(SettingError, match="already holds a run"):
        run(data, waiting, seed=2)
    assert contents(tmp_path) == before
    run(data, Journal.claim(tmp_path, overwrite=True), seed=2)
    assert dc.load(tmp_path).config["seed"] == 2


def test_a_run_that_was_begun_meanwhile_is_not_replaced(data: dc.FederatedData, tmp_path: Path) -> None:
    waiting = Journal.claim(tmp_path, overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, progress=stop)
    with pytest.raises(SettingError, match="holds an unfinished run"):
        run(data, waiting)


def test_a_run_that_was_resumed_meanwhile_is_not_resumed_again(data: dc.FederatedData, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, progress=stop)
    waiting = Journal.reopen(tmp_path)
    torch.manual_seed(0)
    dc.resume(tmp_path, dc.Task(torch.nn.Linear(4, 3)), data)
    before = contents(tmp_path)
    with pytest.raises(ResumeError, match="holds a finished run"):
        run(data, waiting)
    assert contents(tmp_path) == before


def test_a_run_that_was_begun_anew_meanwhile_is_not_gone_on_with(data: dc.FederatedData, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, progress=stop)
    waiting = Journal.reopen(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, seed=5, overwrite=True, progress=stop)
    with pytest.raises(ResumeError, match="another process has begun another run"):
        run(data, waiting)


@pytest.mark.slow
def test_of_two_real_processes_one_gets_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_TO_BEGIN, str(tmp_path)]
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | {"text": True}
    both = [subprocess.Popen([*command, str(seed)], **pipes) for seed in (1, 2)]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "claimed\n"
    said = [process.communicate("go\n", timeout=120)[1] for process in both]  # the second when the first is done
    assert [process.returncode for process in both] == [0, 1], said
    assert "MeanwhileError" in said[1] and "already holds a run" in said[1]
    assert dc.load(tmp_path).config["seed"] == 1
