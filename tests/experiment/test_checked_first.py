"""What one cell of a comparison would refuse is refused before any cell is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import descant as dc
from descant.engine import Record
from descant.errors import SettingError
from descant.experiment.attackgrid import attack_grid
from descant.experiment.cells import Cell
from descant.experiment.grid import comparison
from descant.methods import EWC, FedAMP, FedAvg, LpProj

DATA = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)


def values(**changes: Any) -> dict[str, Any]:
    """A comparison whose last method is the one that has something to refuse."""
    return {
        "data": {"name": "synthetic", "clients": 6, "samples": 30, "dim": 4, "classes": 3},
        "methods": {"alone": {"name": "local", "steps": 2}, "amp": {"name": "fedamp", "steps": 2}},
        "rounds": 2,
    } | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"own_start": True},
            r"methods\.amp: own_start: not with the method 'fedamp': .*; leave the method out, or give it a "
            r"value of its own, methods\.amp\.run\.own_start",
        ),
        ({"newcomers": 2}, r"methods\.amp: newcomers: .*something of its own; .*methods\.amp\.run\.newcomers"),
        ({"aggregator": "krum"}, r"methods\.amp: aggregator: not with the method 'fedamp'"),
        (
            {"methods": {"alone": "local", "wide": {"name": "lp-proj", "dim": 99}}},
            r"methods\.wide\.dim = 99: it must be at most 15",
        ),
        (
            {"methods": {"alone": "local", "late": {"name": "ditto", "after": 2}}},
            r"methods\.late\.after = 2: it must be below rounds = 2",
        ),
    ],
)
def test_a_refusal_comes_before_the_first_cell(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    def refuse(cell: Cell, record: Record) -> None:
        raise AssertionError(f"{cell} was run")

    with pytest.raises(SettingError, match=message):
        list(comparison(values(**changes), tmp_path / "grid").run(refuse))
    assert not (tmp_path / "grid").exists()


FRACTIONS: dict[str, Any] = {"attacks": {"flip": "sign-flip", "stamp": {"name": "backdoor"}}, "fractions": [0, 0.5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"own_start": True},
            r"methods\.amp: own_start: .*; leave the method out, or give it a value of its own, "
            r"methods\.amp\.run\.own_start$",
        ),
        (
            {"methods": {"amp": {"name": "fedamp", "run": {"own_start": True}}}},
            r"methods\.amp: own_start: .*; leave the method out, or change methods\.amp\.run\.own_start$",
        ),
        ({"fractions": [0.5, 0.95]}, r"^fractions = 0\.95: it must be a smaller fraction; it is 6 of 6 clients"),
        (
            {"attacks": {"mine": {"attacks": "sign-flip", "fractions": [0.92]}}},
            r"^attacks\.mine\.fractions = 0\.92: it must be a smaller fraction; it is 6 of 6 clients",
        ),
        ({"attacks": {"stamp": {"name": "backdoor", "size": 30}}}, r"^attacks\.stamp\[0\] \(backdoor\)\.size = 30"),
        (
            {"attacks": {"flips": [{"name": "flipped-labels", "source": 1, "target": 7}]}},
            r"^attacks\.flips\[0\] \(flipped-labels\)\.target = 7, and the data 'synthetic' has 3 classes",
        ),
    ],
)
def test_a_table_of_robustness_names_what_the_user_wrote(changes: dict[str, Any], message: str) -> None:
    def refuse(cell: Cell, record: Record) -> None:
        raise AssertionError(f"{cell} was run")

    with pytest.raises(SettingError, match=message):
        list(attack_grid(values(**FRACTIONS | changes)).grid.run(refuse))


def test_objects_under_attack_by_everyone_are_refused_too() -> None:
    with pytest.raises(SettingError, match=r"fractions = 0\.95: .*6 of 6 clients"):
        dc.robustness(dc.Task(nn.Linear(4, 3)), DATA, [FedAvg()], attacks=["sign-flip"], fractions=[0.95], rounds=1)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (FedAMP(), {"newcomers": 1}, r"methods\.last: newcomers: "),
        (LpProj(dim=99), {}, r"methods\.last\.dim = 99"),
        (EWC(solver=FedAvg()), {}, r"methods\.last: model: .*GroupNorm, say; leave the method out$"),
    ],
)
def test_objects_are_checked_first_too(method: Any, settings: dict[str, Any], message: str) -> None:
    def refuse(record: Record) -> None:
        raise AssertionError("a cell was run")

    task = dc.Task(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    with pytest.raises(SettingError, match=message):
        dc.compare(task, DATA, {"first": FedAvg(), "last": method}, rounds=1, progress=refuse, **settings)


def test_a_setting_of_its_own_is_the_remedy() -> None:
    own = {"name": "fedamp", "steps": 2, "run": {"own_start": False}}
    methods = {"alone": {"name": "local", "steps": 2}, "amp": own}
    assert len(list(comparison(values(own_start=True, methods=methods)).run())) == 2


def test_finished_cells_are_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read, whatever a run of them would say today."""
    list(comparison(values(), tmp_path).run())

    def refuse(self: Any, rounds: int, layout: Any) -> None:
        raise SettingError("alpha = 1: it must be 2")

    monkeypatch.setattr(FedAMP, "check_run", refuse)
    assert len(list(comparison(values(), tmp_path).run())) == 2
    with pytest.raises(SettingError, match=r"methods\.amp\.alpha = 1: it must be 2"):
        list(comparison(values(seeds=[0, 1]), tmp_path).run())


def test_one_cell_speaks_for_those_of_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(FedAMP, "check_run", lambda self, rounds, layout: checked.append(f"amp {rounds}"))
    grid = comparison(values(seeds=3))
    grid.check()
    assert checked == ["amp 2"]
