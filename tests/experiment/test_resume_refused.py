"""Going on with an interrupted run: what is refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.engine import Record
from descant.errors import ResumeError, SettingError
from descant.experiment import unfinished
from descant.experiment.begun import _differ
from descant.sealed import read_json, write_json
from tests.experiment.resumable import begin, federation, new_task


@pytest.fixture
def data() -> dc.FederatedData:
    return federation()


def test_a_run_that_goes_on_needs_its_task_and_its_data(data: dc.FederatedData, tmp_path: Path) -> None:
    begin(data, tmp_path)
    with pytest.raises(ResumeError, match="hand in its task and its data"):
        dc.resume(tmp_path)
    with pytest.raises(ResumeError, match="hand in its task and its data"):
        dc.resume(tmp_path, new_task())
    other = federation(seed=1)
    with pytest.raises(ResumeError, match="begun with other data"):
        dc.resume(tmp_path, new_task(), other)
    with pytest.raises(ResumeError, match="begun with another model"):
        dc.resume(tmp_path, dc.Task(torch.nn.Linear(4, 3)), data)
    with pytest.raises(ResumeError, match="begun with task = "):
        dc.resume(tmp_path, dc.Task(new_task().model, buffers="local"), data)
    assert dc.resume(tmp_path, new_task(), data).summary()["rounds"] == 8, "a refusal harms nothing"


@pytest.mark.few(1)
@pytest.mark.parametrize("package", ["descant", "torch"])
def test_a_run_of_another_version_is_refused(data: dc.FederatedData, tmp_path: Path, package: str) -> None:
    begin(data, tmp_path)
    start, _ = read_json(tmp_path / "start.json")
    start["config"]["versions"][package] = "0.0.1"
    write_json(tmp_path / "start.json", start)
    with pytest.raises(ResumeError, match=rf"begun with {package} 0\.0\.1"):
        dc.resume(tmp_path, new_task(), data)


def test_a_run_from_before_there_was_a_setting_goes_on_with_its_default(
    data: dc.FederatedData, tmp_path: Path
) -> None:
    begin(data, tmp_path)
    start, _ = read_json(tmp_path / "start.json")
    del start["config"]["deterministic"], start["config"]["method"]["clip"]
    del start["config"]["method"]["solver"]["weighted"]
    write_json(tmp_path / "start.json", start)
    assert dc.resume(tmp_path, new_task(), data).summary()["rounds"] == 8


@pytest.mark.parametrize(
    ("then", "now", "differ"),
    [
        ({"lam": 0.3}, {"lam": 0.3, "later": 1}, False),
        ({"lam": 0.7}, {"lam": 0.3}, True),
        ({"lam": 0.3, "gone": 1}, {"lam": 0.3}, True),
        ({"clients": 3, "notes": ["a"]}, {"clients": 3, "notes": ["b"]}, False),
        ({"solver": {"lr": 1}}, {"solver": {"lr": 1, "later": None}}, False),
        ({"solver": {"lr": 2}}, {"solver": {"lr": 1}}, True),
        ({"solver": "fedavg"}, {"solver": {"lr": 1}}, True),
        ({"clients": 3, "notes": ["one"]}, {"clients": 3}, False),
        ({"clients": 3}, {"clients": 4, "notes": ["one"]}, True),
    ],
)
def test_what_both_have_and_what_is_gone_must_be_the_same(
    then: dict[str, Any], now: dict[str, Any], differ: bool
) -> None:
    assert _differ(then, now) == differ


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
    with pytest.raises(
        SettingError,
        match=r"unfinished run: go on with it \(in Python: descant.resume\(.*, task, data\).*overwrite",
    ):
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


def test_how_to_go_on_with_a_run_of_python_is_said_as_it_works(data: dc.FederatedData, tmp_path: Path) -> None:
    begin(data, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"unfinished: go on with descant\.resume\(.*, task, data\)"):
        dc.load(tmp_path)
    with pytest.raises(SettingError, match=r"unfinished: .*in Python: descant\.resume\(.*, task, data\)"):
        dc.report(tmp_path)
    assert dc.resume(tmp_path, new_task(), data).summary()["rounds"] == 8


def test_a_run_from_when_its_method_computed_otherwise_is_refused(data: dc.FederatedData, tmp_path: Path) -> None:
    begin(data, tmp_path, method=dc.methods.Hush(m=3, steps=1))
    start, _ = read_json(tmp_path / "start.json")
    assert start["config"].pop("revision") == 2
    write_json(tmp_path / "start.json", start)
    with pytest.raises(ResumeError, match=r"whose method 'hush' computed otherwise: .*begin anew with overwrite"):
        dc.resume(tmp_path, new_task(), data)
