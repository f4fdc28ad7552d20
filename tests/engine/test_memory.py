"""mode="auto" remembers what it measured: the same run again takes the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.execution import memory, tuning
from descant.execution.memory import Choice, key_of, recall, remember
from descant.methods import Local

CPU = torch.device("cpu")
CHOICE = Choice("vmap", "µs a step of one client: vmap 3, loop 9", [])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DESCANT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def task(width: int = 3) -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.Linear(width, 3)))


def data(*sizes: int) -> dc.FederatedData:
    clients = [torch.randn(n, 5, generator=torch.Generator().manual_seed(n)) for n in sizes or (9, 30)]
    return dc.FederatedData.from_arrays([(x, (x[:, 0] > 0).long()) for x in clients])


class Clock:
    """Times that are made up: what is fastest is another one at every measurement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.measured = 0
        self.fastest = "vmap"
        monkeypatch.setattr(tuning, "_seconds_a_client", self)

    def __call__(self, execution: Any, *_: Any) -> float:
        self.measured += 1
        return 1e-6 if execution.mode == self.fastest else 1e-3


def mode_of(method: Local, task: dc.Task, data: dc.FederatedData, **settings: Any) -> str:
    return str(dc.simulate(task, data, method, **{"rounds": 2} | settings).config["execution"]["mode"])


def test_the_same_run_takes_the_way_that_it_took_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    first = dc.simulate(task(), data(), Local(steps=2), rounds=2)
    measured, clock.fastest = clock.measured, "loop"  # as on a machine that has become busy
    again = dc.simulate(task(), data(), Local(steps=2), rounds=2)
    assert first.config == again.config and clock.measured == measured > 0
    assert first.config["execution"]["mode"] == "vmap"
    for k in range(2):
        for one, other in zip(
            first.personal(k, round="last").parameters(), again.personal(k, round="last").parameters(), strict=True
        ):
            assert torch.equal(one, other)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "other",
    [
        {"task": task(4)},
        {"data": data(9, 50)},
        {"method": Local(steps=3)},
        {"method": Local(steps=2, batch=7)},
        {"rounds": 3},
        {"cohort": 1},
        {"chunk": 1},
    ],
    ids=["model", "data", "steps", "batch", "rounds", "cohort", "chunk"],
)
def test_another_run_is_measured_for_itself(monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]) -> None:
    clock = Clock(monkeypatch)
    usual: dict[str, Any] = {"method": Local(steps=2), "task": task(), "data": data()}
    assert mode_of(**usual) == "vmap"
    clock.fastest = "loop"
    assert mode_of(**usual | other) == "loop"
    assert (mode_of(**usual), mode_of(**usual | other)) == ("vmap", "loop")


def test_another_machine_or_version_measures_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = key_of(CPU, "run")
    assert key_of(CPU, "run") == usual != key_of(CPU, "another")
    for name, value in (("__version__", "0"), ("_processor", lambda: "other")):
        with monkeypatch.context() as other:
            other.setattr(memory, name, value)
            assert key_of(CPU, "run") != usual, name
    with monkeypatch.context() as other:
        other.setattr(torch, "get_num_threads", lambda: 77)
        assert key_of(CPU, "run") != usual


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null", b"[" * 100_000]
    + [json.dumps({"k": entry}).encode() for entry in (3, {}, {"name": "vmap"}, ["vmap", "why", []])]
    + [
        json.dumps({"k": CHOICE._asdict() | wrong}).encode()
        for wrong in ({"name": 3}, {"notes": "n"}, {"notes": [1]})
    ],
)
def test_a_damaged_file_is_ignored_and_written_anew(cache: Path, content: bytes) -> None:
    cache.mkdir()
    (cache / "modes.json").write_bytes(content)
    assert recall("k") is None
    remember("k", CHOICE)
    assert recall("k") == CHOICE
    assert [file.name for file in cache.iterdir()] == ["modes.json"]


def test_a_way_that_is_unknown_is_measured_anew(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    clock = Clock(monkeypatch)
    mode_of(Local(steps=2), task(), data())
    path, measured = cache / "modes.json", clock.measured
    path.write_text(path.read_text().replace('"vmap"', '"magic"'))
    assert mode_of(Local(steps=2), task(), data()) == "vmap"
    assert clock.measured == 2 * measured and "magic" not in path.read_text()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert mode_of(Local(steps=2), task(), data()) in ("vmap", "loop")
    assert recall("k") is None


def test_only_the_latest_choices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST", 3)
    for key in ("a", "b", "c", "a", "d"):
        remember(key, CHOICE)
    assert [key for key in "abcd" if recall(key)] == ["a", "c", "d"]


@pytest.mark.slow
def test_processes_that_write_at_once_leave_a_whole_file(cache: Path) -> None:
    code = "import sys; from descant.execution.memory import *\n"
    code += "for i in range(20): remember(f'{sys.argv[1]}-{i}', Choice('vmap', 'why', []))"
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("one", "two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = json.loads((cache / "modes.json").read_text())
    assert any(key.endswith("-19") for key in found)
    assert all(recall(key) == Choice("vmap", "why", []) for key in found)
    assert [file.name for file in cache.iterdir()] == ["modes.json"]
