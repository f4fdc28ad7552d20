"""A cell of a grid is known by what its result follows from, and by nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.catalog import describe
from descant.errors import SettingError
from descant.experiment import Run
from descant.experiment.allowed import Share
from descant.experiment.cells import FromFile
from descant.experiment.declaring import setting
from descant.experiment.grid import comparison
from descant.experiment.namesakes import rows_of
from descant.experiment.settings import RunSettings
from descant.sealed import read_json, write_json
from tests.experiment.onecell import VALUES, run


def key(**changes: Any) -> str:
    return FromFile(RunSettings.of(VALUES | changes)).key


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "loop"},
        {"device": "cuda"},
        {"chunk": 3},
        {"threads": 2},
        {"store": "disk"},
        {"commit": 5},
        {"cohort": None, "sampling": "uniform", "evaluate": 1},
        {"evaluate": {"every": 1, "parts": ["train", "valid", "test"]}},
        {"aggregator": {"name": "mean"}},
        {"aggregator": ["mean"]},
        {"aggregator": [{"name": "mean"}]},
        {"newcomers": 0},
        {"newcomers": 0.0},
        {"newcomers": []},
        {"malicious": 0},
        {"malicious": []},
        {"cohort": 1.0},
        {"keep_models": "none"},
        {"codec": "native"},
        {"model": {"name": "linear"}},
        {"data": VALUES["data"] | {"alpha": 0, "seed": 0, "folder": None}},
        {"method": {"name": "ditto", "steps": 2, "lam": 1, "solver": "fedavg"}},
        {"method": {"name": "ditto", "steps": 2, "solver": {"name": "fedavg", "lr": 0.1, "batch": 64}}},
    ],
)
def test_how_a_run_is_carried_out_and_what_is_so_by_default_rename_no_cell(changes: dict[str, Any]) -> None:
    assert key(**changes) == key()


OTHERS: list[dict[str, Any]] = [
    {"rounds": 3},
    {"seed": 1},
    {"cohort": 2},
    {"evaluate": 2},
    {"aggregator": "geometric-median"},
    {"aggregator": {"name": "geometric-median", "cap": 5}},
    {"model": {"name": "mlp", "hidden": [5]}},
    {"buffers": "local"},
    {"loss": "hinge"},
    {"data": VALUES["data"] | {"seed": 1}},
    {"data": VALUES["data"] | {"seed": "run"}},
    {"data": {"name": "digits"}},
    {"data": {"name": "digits", "partition": {"name": "iid", "clients": 5}}},
    {"method": {"name": "ditto", "steps": 3}},
    {"method": {"name": "ditto", "steps": 2, "solver": {"name": "fedavg", "lr": 0.2}}},
    {"method": {"name": "ditto", "steps": 2, "batch": {"name": "power", "scale": 8}}},
    {"method": {"name": "ditto", "steps": 2, "batch": {"name": "power", "scale": 9}}},
]


@pytest.mark.few(8)
@pytest.mark.parametrize("changes", OTHERS)
def test_what_the_result_follows_from_renames_the_cell(changes: dict[str, Any]) -> None:
    every = [key(), *(key(**other) for other in OTHERS)]
    assert every.count(key(**changes)) == 1


def test_a_setting_that_is_added_with_a_default_renames_no_cell() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(RunSettings):
        lost: float = setting("the share of messages that are lost.", "result", Share(), 0.0)

    assert FromFile(Later.of(VALUES)).key == key()
    assert FromFile(Later.of(VALUES | {"lost": 0.1})).key != key()


def test_the_label_is_in_the_readable_part_alone() -> None:
    one, other = key(), key(label="Mine, all mine")
    assert one.startswith("ditto-seed0-") and other.startswith("mine-all-mine-seed0-")
    assert one.rsplit("-", 1)[1] == other.rsplit("-", 1)[1]


@pytest.fixture
def clients(tmp_path: Path) -> Callable[[int], dict[str, Any]]:
    """Write a folder of clients, and return settings of a comparison on it."""

    def write(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        (tmp_path / "clients").mkdir(exist_ok=True)
        for name in ("ann", "bob"):
            inputs = rng.normal(size=(20, 3)).astype(np.float32)
            np.savez(tmp_path / "clients" / f"{name}.npz", inputs=inputs, targets=np.arange(20) % 2)
        data = {"name": "folder", "folder": str(tmp_path / "clients")}
        return {"data": data, "methods": {"alone": {"name": "local", "steps": 1}}, "rounds": 1}

    return write


def test_a_finished_cell_whose_data_changed_is_run_anew(
    tmp_path: Path, clients: Callable[[int], dict[str, Any]]
) -> None:
    first, made = run(clients(0), tmp_path / "grid")
    assert made > 0 and run(clients(0) | {"mode": "loop"}, tmp_path / "grid")[1] == 0, (
        "the same data, written again"
    )
    second, made = run(clients(1), tmp_path / "grid")
    assert made > 0 and not first.clients.equals(second.clients)
    assert first.config["data"]["fingerprint"] != second.config["data"]["fingerprint"]
    again, made = run(clients(1), tmp_path / "grid")
    assert made == 0 and again.clients.equals(second.clients)


@pytest.mark.parametrize("state", ["finished", "begun"])
def test_a_cell_from_when_a_default_was_another_is_run_anew_beside_it(
    tmp_path: Path, clients: Callable[[int], dict[str, Any]], state: str
) -> None:
    """The names of cells leave defaults out, so that the name says nothing of it; what the run recorded does."""
    values = clients(0) | {"methods": {"few bytes": {"name": "hush", "m": 2, "steps": 1}}}
    grid = tmp_path / "grid"
    run(values, grid)
    (folder,) = grid.iterdir()
    about, _ = read_json(folder / "run.json")
    about["config"]["method"] |= {"bits": 3, "rotate": False}
    write_json(folder / "run.json", about)
    if state == "begun":
        (folder / "run.json").rename(folder / "start.json")
        (folder / "journal").mkdir()
    second, made = run(values, grid)
    assert made > 0 and second.config["method"]["bits"] == [2, 1] and len(list(grid.iterdir())) == 2
    assert run(values, grid)[1] == 0, "which is then found again"


@pytest.mark.parametrize("state", ["finished", "begun"])
def test_a_cell_from_when_its_method_computed_otherwise_is_run_anew_beside_it(
    tmp_path: Path, clients: Callable[[int], dict[str, Any]], state: str
) -> None:
    values = clients(0) | {"methods": {"few bytes": {"name": "hush", "m": 2, "steps": 1}}}
    run(values, tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if "few-bytes" in path.name)
    about, _ = read_json(folder / "run.json")
    assert about["config"].pop("revision") == 2
    write_json(folder / "run.json", about)
    old = Run.load(folder)
    if state == "begun":
        (folder / "run.json").rename(folder / "start.json")
        (folder / "journal").mkdir()
    second, made = run(values, tmp_path)
    assert made > 0 and run(values, tmp_path)[1] == 0, "which is then found again"
    assert list(rows_of([old, second])) == ["few bytes (revision=None)", "few bytes (revision=2)"]


def test_a_finished_cell_beside_is_read_whatever_has_become_of_its_data(
    tmp_path: Path, clients: Callable[[int], dict[str, Any]]
) -> None:
    values = clients(0)
    run(values, tmp_path / "grid")
    (path,) = (tmp_path / "grid").glob("*/run.json")
    about, _ = read_json(path)
    about["config"]["method"]["lr"] = 0.123
    write_json(path, about)
    assert run(values, tmp_path / "grid")[1] > 0
    shutil.rmtree(tmp_path / "clients")
    assert run(values, tmp_path / "grid")[1] == 0


def test_a_cell_of_other_defaults_is_checked_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {name: value for name, value in VALUES.items() if name != "method"} | {"methods": ["ditto"]}
    run(values, tmp_path)
    (path,) = tmp_path.glob("*/run.json")
    about, _ = read_json(path)
    about["config"]["method"]["lam"] = 0.5
    write_json(path, about)
    checked: list[str] = []
    check = FromFile.check

    def noted(cell: FromFile) -> Any:
        checked.append(cell.label)
        return check(cell)

    monkeypatch.setattr(FromFile, "check", noted)
    assert run(values, tmp_path)[1] > 0 and checked == ["ditto"]


def test_the_name_of_a_cell_beside_follows_from_what_differs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that is added to a method later renames it no more than any other cell."""
    cell = FromFile(RunSettings.of(VALUES))
    cell.settings.execute(tmp_path / "cell")
    about, _ = read_json(tmp_path / "cell" / "run.json")
    about["config"]["method"]["lam"] = 0.5
    write_json(tmp_path / "cell" / "run.json", about)
    beside = cell.place(tmp_path / "cell")
    monkeypatch.setattr("descant.experiment.cells.describe", lambda method: describe(method) | {"later": 1})
    assert cell.place(tmp_path / "cell") == beside != tmp_path / "cell"


def test_files_that_nobody_touched_are_not_read_again(
    tmp_path: Path, clients: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = clients(0)
    run(values, tmp_path / "grid")

    def read(*_: Any) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr(RunSettings, "federated_data", read)
    assert run(values, tmp_path / "grid")[1] == 0
    os.utime(tmp_path / "clients" / "ann.npz", ns=(1, 1))
    with pytest.raises(AssertionError, match="were read"):
        run(values, tmp_path / "grid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [1, 1]}, r"seeds = \[1, 1\]: 1 stands twice"),
        ({"seeds": [0, -1]}, r"seeds\[1\] = -1: it must be a whole number"),
        ({"seeds": ["a"]}, r"seeds\[0\] = 'a'"),
        ({"seeds": True}, "seeds = True"),
        ({"seeds": 0}, "seeds = 0"),
        ({"methods": {"A b": "local", "a-b": "local"}}, "'A b' and 'a-b' are the same runs"),
        ({"methods": {"a": {"name": "local", "lr": -1}}}, r"methods\.a\.lr = -1\.0"),
        ({"methods": {"a": {"name": "local", "run": {"rounds": 0}}}}, r"methods\.a\.run\.rounds = 0"),
        ({"methods": {"a": {"name": "local", "run": {"seed": 3}}}}, r"methods\.a\.run\.seed"),
        ({"methods": {"a": 3}}, r"methods\.a = 3"),
        ({"methods": [3]}, r"methods\.3 = 3"),
    ],
)
def test_a_comparison_that_would_count_twice_or_mean_nothing_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    values = {name: value for name, value in VALUES.items() if name != "method"} | {"methods": ["local"]}
    with pytest.raises(SettingError, match=message):
        comparison(values | changes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"newcomers": [3, 1, "2"]}, {"newcomers": ["2", 1, 3]}),
        ({"malicious": [2, 0], "attacks": "sign-flip"}, {"malicious": [0, 2], "attacks": ["sign-flip"]}),
        ({"aggregator": ["krum"]}, {"aggregator": "krum"}),
    ],
)
def test_what_means_the_same_is_the_same_cell(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(**one) == key(**other) != key()
