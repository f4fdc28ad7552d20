"""A comparison with a damaged run in it: that one is named and left out, the others are reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.errors import DamagedError, LeftOutWarning
from descant.experiment import Run
from descant.experiment.grid import comparison
from descant.report import Report
from tests.bad_input.calling import descant

GRID: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 5, "samples": 20, "dim": 4, "classes": 3},
    "methods": {"good": {"name": "local", "steps": 1}, "bad": {"name": "local", "steps": 2}},
    "rounds": 2,
    "mode": "vmap",
}


def damage(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 4]) + raw[len(raw) // 2 + 1 :])


def test_a_damaged_cell_is_named_and_left_out(tmp_path: Path) -> None:
    (_, good), (bad, _) = comparison(GRID, tmp_path).run()
    damage(tmp_path / bad.key / "clients.parquet")
    with pytest.warns(LeftOutWarning, match=r"'bad' \(seed 0\) is left out: .*clients\.parquet is damaged"):
        ((cell, run),) = comparison(GRID, tmp_path).run()
    assert cell.label == "good" and run.clients.equals(good.clients)
    with pytest.warns(LeftOutWarning, match=r"clients\.parquet is damaged"):
        assert [entry.label for entry in Report.of(tmp_path).experiments[0].entries] == ["good"]
    said = descant("report", str(tmp_path), "--format", "csv", "-o", str(tmp_path / "tables"), cwd=tmp_path)
    assert said.status == 0 and "descant: a run is left out" in said.err, said.err
    found = descant("verify", str(tmp_path), cwd=tmp_path)
    assert found.status == 2 and f"{bad.key}/clients.parquet is damaged" in found.err.replace("\n", "")
    damage(next(path for path in tmp_path.glob("good*/clients.parquet")))
    with pytest.warns(LeftOutWarning), pytest.raises(DamagedError):
        list(comparison(GRID, tmp_path).run())


def test_a_cell_that_lost_its_settings_is_named_and_not_replaced(tmp_path: Path) -> None:
    _, (bad, _) = comparison(GRID, tmp_path).run()
    (tmp_path / bad.key / "run.json").unlink()
    with pytest.warns(
        LeftOutWarning,
        match=rf"'bad' \(seed 0\) is left out: .*run\.json is missing, of a run that was finished: take "
        rf"{tmp_path / bad.key} from a copy, or remove that folder and run the same again",
    ):
        [(cell, _)] = comparison(GRID, tmp_path).run()
    assert cell.label == "good" and (tmp_path / bad.key / "summary.json").is_file()


FILE = """\
data: {name: synthetic, clients: 5, samples: 20, dim: 4, classes: 3}
methods: {good: {name: fedavg, steps: 1}, bad: {name: fedavg, steps: 2}}
rounds: 2
seeds: 2
mode: vmap
"""
COMMANDS = {
    "compare": ("compare", ""),
    "budget": ("budget", "budgets: [10 kB]\n"),
    "robustness": ("robustness", "attacks: {flip: sign-flip}\nfractions: [0.2]\n"),
}


def words(text: str) -> str:
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_label_seed_and_folder_marks_the_row_and_ends_with_status_2(
    name: str, tmp_path: Path
) -> None:
    command, more = COMMANDS[name]
    (tmp_path / "grid.yaml").write_text(FILE + more)
    assert (whole := descant(command, "grid.yaml", "-q", cwd=tmp_path)).status == 0, whole.err
    assert "1 of 2" not in whole.out and "are marked" not in whole.out
    [lost] = tmp_path.glob("runs/grid/bad*seed0*")
    (lost / "run.json").unlink()
    done = descant(command, "grid.yaml", "-q", cwd=tmp_path)
    there = lost.relative_to(tmp_path)
    assert done.status == 2 and done.err.count("is left out") == 1 and "(seed 0) is left out" in done.err
    assert f"take {there} from a copy, or remove that folder and run the same again" in done.err
    assert "overwrite" not in done.err
    marked = [line for line in done.out.splitlines() if "1 of 2 seeds" in words(line)]
    assert marked and all(line.split()[0] == "bad" for line in marked), done.out
    if command != "budget":
        assert "± standard deviation over 2 seeds, or over as many as are marked" in words(done.out)
    assert descant(command, "grid.yaml", "-q", "--json", cwd=tmp_path).status == 2
    shutil.rmtree(lost)  # as it was advised
    again = descant(command, "grid.yaml", "-q", cwd=tmp_path)
    assert (again.status, again.out, again.err) == (0, whole.out, "")


def test_a_report_names_a_run_that_lost_its_settings(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(FILE)
    assert descant("compare", "grid.yaml", "-q", cwd=tmp_path).status == 0
    [lost] = tmp_path.glob("runs/grid/bad*seed0*")
    (lost / "run.json").unlink()
    done = descant("report", "runs/grid", "--format", "md", "-o", "tables", cwd=tmp_path)
    assert done.status == 0 and f"a run is left out: {lost}/run.json is missing, of a run that was" in done.err
    tables = "".join(path.read_text() for path in (tmp_path / "tables").glob("*.md"))
    assert "bad (1 of 2 seeds)" in tables and "over 2 seeds, or over as many as are marked" in tables
    alone = descant("report", str(lost), cwd=tmp_path)
    assert alone.status == 2 and f"{lost}/run.json is missing, of a run that was finished" in alone.err
    with pytest.raises(DamagedError, match=r"run\.json is missing"):
        Run.load(lost)


def test_a_cell_whose_data_changed_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for k in range(3):
        inputs = rng.normal(size=(10, 4)).astype("float32")
        np.savez(tmp_path / "data" / f"{k}.npz", inputs=inputs, targets=np.arange(10) % 3)
    grid = GRID | {"data": {"name": "folder", "folder": str(tmp_path / "data")}}
    list(comparison(grid, tmp_path / "runs").run())
    assert len(list(comparison(grid, tmp_path / "runs").run())) == 2
    np.savez(tmp_path / "data" / "0.npz", inputs=inputs + 1, targets=np.arange(10) % 3)
    from descant.experiment import settings

    settings._load.cache_clear()  # as in a process of its own
    before = {path.name: (path / "run.json").read_bytes() for path in (tmp_path / "runs").iterdir()}
    list(comparison(grid, tmp_path / "runs").run())
    after = {path.name: (path / "run.json").read_bytes() for path in (tmp_path / "runs").iterdir()}
    assert len(after) == 4 and before.items() <= after.items(), "the old runs stay as they are"
    assert all(any(name.startswith(old) for old in before) for name in after)
    (tmp_path / "data").rename(tmp_path / "gone")
    settings._load.cache_clear()
    assert len(list(comparison(grid, tmp_path / "runs").run())) == 2, "what is finished is what is left"
