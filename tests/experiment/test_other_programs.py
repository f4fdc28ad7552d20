"""A run.json or start.json of another program is no run of ours: it is passed over, and never called damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

import descant as dc
from descant.errors import SettingError
from descant.experiment.journal import finished, unfinished
from tests.bad_input.calling import descant

SETTINGS = {
    "data": {"name": "synthetic", "clients": 3, "samples": 12, "dim": 3, "classes": 2},
    "model": "linear",
    "methods": {"A": {"name": "fedavg", "steps": 1}, "B": {"name": "local", "steps": 1}},
    "rounds": 1,
    "mode": "vmap",
}
THEIRS = '{"job": 17, "state": "done"}'


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(SETTINGS))
    assert descant("compare", "two.yaml", "-q", cwd=tmp_path).status == 0
    return tmp_path / "runs" / "two"


@pytest.mark.parametrize("name", ["run.json", "start.json"])
@pytest.mark.parametrize("place", [".", "theirs"])
def test_reports_and_verify_pass_over_it(grid: Path, name: str, place: str) -> None:
    (grid / place).mkdir(exist_ok=True)
    (grid / place / name).write_text(THEIRS)
    done = descant("verify", ".", cwd=grid)
    assert done.status == 0 and not done.err
    done = descant("report", ".", "-o", "page.html", cwd=grid)
    assert done.status == 0 and not done.err and (grid / "page.html").is_file()
    assert (grid / place / name).read_text() == THEIRS


def test_a_folder_with_it_alone_holds_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(THEIRS)
    assert not finished(tmp_path) and not unfinished(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no run\.json of descant's in it"):
        dc.load(tmp_path)
    for command in (["report"], ["verify"], ["export"], ["resume"]):
        done = descant(*command, ".", *(["models"] if command == ["export"] else []), cwd=tmp_path)
        assert done.status == 2 and "damaged" not in done.err and "overwrite" not in done.err


def test_a_cell_in_which_it_lies_is_not_to_be_removed(grid: Path) -> None:
    [cell] = grid.glob("a-*")
    for path in sorted(cell.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (cell / "run.json").write_text(THEIRS)
    (cell / "photo.jpg").write_text("theirs, too")
    done = descant("compare", "../../two.yaml", "-o", ".", "-q", cwd=grid)
    assert done.status == 2 and "remove" not in done.err
    assert "holds 'run.json', which no run of descant made" in done.err and "move it away" in done.err
    assert sorted(path.name for path in cell.iterdir()) == ["photo.jpg", "run.json"]


def test_one_that_is_damaged_is_still_called_so(grid: Path) -> None:
    [run] = grid.glob("a-*/run.json")
    for text in (run.read_text()[:-40], "", run.read_text().replace("fedavg", "fedavx")):
        run.write_text(text)
        assert finished(run.parent)
        with pytest.raises(ValueError, match=r"run\.json is damaged"):
            dc.load(run.parent)
    with pytest.raises(SettingError, match="already holds a run"):
        dc.simulate(torch.nn.Linear(3, 10), dc.data.synthetic(clients=2, dim=3), "fedavg", rounds=1, out=run.parent)
