"""`compare` with a folder: what is finished is read, what is begun gone on with, and what is another run is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import descant as dc
from descant.callbacks import EarlyStopping
from descant.engine import Record, RoundRecord
from descant.errors import SettingError
from descant.methods import Local
from descant.sealed import read_json, write_json
from tests.test_comparison import DATA, HOW, METHODS, task


def counted(records: list[Record]) -> int:
    return sum(isinstance(record, RoundRecord) for record in records)


def test_with_a_folder_finished_runs_are_read_and_interrupted_ones_gone_on_with(tmp_path: Path) -> None:
    records: list[Record] = []

    def stop(record: Record) -> None:
        records.append(record)
        if counted(records) == 8:  # in the third run
            raise KeyboardInterrupt

    def go(progress: Callable[[Record], None]) -> dc.Comparison:
        return dc.compare(task(), DATA, METHODS, seeds=2, out=tmp_path, progress=progress, commit=1, **HOW)

    with pytest.raises(KeyboardInterrupt):
        go(stop)
    records.clear()
    resumed = go(records.append)
    assert counted(records) == 4, "the last of the third run, and the three of the fourth"
    unbroken = dc.compare(task(), DATA, METHODS, seeds=2, **HOW)
    for run, other in zip(unbroken, resumed, strict=True):
        assert run.clients.equals(other.clients)
    records.clear()
    assert go(records.append).table().drop("seconds").equals(resumed.table().drop("seconds")) and not records


@dataclass(frozen=True, kw_only=True)
class Mine(Local):
    """A method of this file, which no import path leads to from elsewhere."""

    name = "mine"


def test_an_interrupted_method_of_ones_own_is_gone_on_with(tmp_path: Path) -> None:
    def stop(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dc.compare(task(), DATA, [Mine(steps=1)], out=tmp_path, progress=stop, commit=1, **HOW)
    assert len(dc.compare(task(), DATA, [Mine(steps=1)], out=tmp_path, **HOW).runs["mine"][0].history.rounds) == 3


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 4},
        {"methods": {"Alone": Local(steps=2, batch=4)}},
        {"data": dc.data.synthetic(clients=5, samples=30, dim=4, classes=3, seed=1)},
        {"callbacks": EarlyStopping(patience=9)},
        {"seeds": [1]},
        {"task": dc.Task(torch.nn.Linear(4, 3), buffers="local")},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_the_result_follows_from_is_run_anew(changes: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": task(), "data": DATA, "methods": {"Alone": Local(steps=1, batch=4)}} | HOW
    dc.compare(**given, out=tmp_path)
    records: list[Record] = []
    dc.compare(**given | {"mode": "loop"}, out=tmp_path, progress=records.append)
    assert not records, "how it is carried out does not matter"
    if "task" in changes:
        changes["task"].model.load_state_dict(given["task"].model.state_dict())
        changes = {"task": dc.Task(changes["task"].model, buffers="local")}
    dc.compare(**given | changes, out=tmp_path, progress=records.append)
    assert records


def test_other_first_parameters_are_refused_and_a_function_of_the_seed_repeats_them(tmp_path: Path) -> None:
    dc.compare(task(0), DATA, METHODS, out=tmp_path / "a", **HOW)
    with pytest.raises(SettingError, match=r"holds 'Alone' \(seed 0\) from other first parameters.*manual_seed"):
        dc.compare(task(1), DATA, METHODS, out=tmp_path / "a", **HOW)

    def fresh(seed: int) -> dc.Task:
        return dc.Task(torch.nn.Linear(4, 3))

    records: list[Record] = []
    drawn = dc.compare(fresh, DATA, METHODS, seeds=2, out=tmp_path / "b", **HOW)
    dc.compare(fresh, DATA, METHODS, seeds=2, out=tmp_path / "b", progress=records.append, **HOW)
    assert not records
    before = [run.history.evaluated["personal"][0]["test_loss"] for run in drawn]
    assert not np.array_equal(before[0], before[1]), "every seed has a model of its own"
    assert np.array_equal(before[0], before[2]), "which all methods start from"


def test_a_run_from_when_a_default_was_another_is_refused(tmp_path: Path) -> None:
    methods = {"few bytes": dc.methods.Hush(m=3, steps=1)}
    dc.compare(task(), DATA, methods, out=tmp_path, **HOW)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    about, _ = read_json(folder / "run.json")
    about["config"]["method"]["bits"] = 3
    write_json(folder / "run.json", about)
    before = sorted(tmp_path.iterdir())
    others = {"first": dc.methods.Local(steps=1)} | methods
    with pytest.raises(SettingError, match=r"from when the default of bits was another .*choose another folder"):
        dc.compare(task(), DATA, others, out=tmp_path, **HOW)
    assert sorted(tmp_path.iterdir()) == before, "which is found before another is run"


def test_a_run_from_when_its_method_computed_otherwise_is_refused(tmp_path: Path) -> None:
    methods = {"few bytes": dc.methods.Hush(m=3, steps=1)}
    dc.compare(task(), DATA, methods, out=tmp_path, **HOW)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    about, _ = read_json(folder / "run.json")
    del about["config"]["revision"]
    write_json(folder / "run.json", about)
    with pytest.raises(SettingError, match=r"from when its method computed otherwise .*choose another folder"):
        dc.compare(task(), DATA, methods, out=tmp_path, **HOW)
