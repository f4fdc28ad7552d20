"""What is left of a run, damaged or cut off, is nobody else's; and nothing of the user's is taken for it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import descant as dc
from descant.errors import DamagedError, SettingError
from descant.experiment import finished, folder, journal
from descant.experiment.verify import verify
from tests.experiment.owned import contents, run


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    return dc.data.synthetic(clients=5, samples=20, dim=4, classes=3)


class Cut(BaseException):
    """What a kill is to a test."""


def replace_until(
    data: dc.FederatedData, out: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, function: str
) -> None:
    """Replace a run, and die where a function of ours would be called."""

    def cut(*_: object) -> None:
        raise Cut

    monkeypatch.setattr(module, function, cut)
    with pytest.raises(Cut):
        run(data, out, overwrite=True)
    monkeypatch.undo()


@pytest.mark.parametrize("settings", [{}, {"store": "disk"}, {"health": 1}])
@pytest.mark.parametrize("lost", ["", "summary.json", "rounds.parquet", "clients.parquet", "federation.parquet"])
def test_what_is_left_of_a_finished_run_is_replaced_on_request_alone(
    data: dc.FederatedData, tmp_path: Path, lost: str, settings: dict[str, Any]
) -> None:
    run(data, tmp_path, **settings)
    for name in filter(None, ("run.json", lost)):
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    with pytest.raises(DamagedError, match=r"run\.json is missing, of a run that was finished"):
        run(data, tmp_path, seed=7)
    assert contents(tmp_path) == before and len(verify(tmp_path)) == 1
    run(data, tmp_path, seed=7, overwrite=True)
    assert finished(tmp_path) and not verify(tmp_path)


def test_what_is_left_of_a_run_that_was_begun_is_replaced_on_request_alone(
    data: dc.FederatedData, tmp_path: Path
) -> None:
    run(data, tmp_path, store="disk")
    for name in (f.name for f in tmp_path.iterdir() if f.is_file() and f.name != ".descant"):
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    assert any(name.startswith("clients/") for name in before)
    with pytest.raises(DamagedError, match=r"start\.json is missing, of a run that was begun"):
        run(data, tmp_path)
    assert contents(tmp_path) == before
    run(data, tmp_path, overwrite=True)
    assert finished(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "rounds.parquet", "state.safetensors", "run.json"])
def test_damage_does_not_make_a_file_of_a_run_somebody_elses(
    data: dc.FederatedData, tmp_path: Path, name: str
) -> None:
    run(data, tmp_path)
    (tmp_path / name).write_bytes(b"")
    run(data, tmp_path, overwrite=True)
    assert finished(tmp_path) and not verify(tmp_path)


def test_a_replacement_that_was_cut_off_is_nobodys_loss(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a run is replaced on request, and the process dies when its first files are gone."""
    run(data, tmp_path)
    (tmp_path / "run.json").rename(tmp_path / "kept")

    replace_until(data, tmp_path, monkeypatch, folder, "remove_folder")
    assert (tmp_path / "models").is_dir() and not finished(tmp_path)
    run(data, tmp_path)
    assert finished(tmp_path)


def test_after_a_cut_a_file_of_the_users_is_still_theirs(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a run is removed, and the process dies before the next one is begun."""
    run(data, tmp_path)

    replace_until(data, tmp_path, monkeypatch, journal, "make_folder")
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(SettingError, match=r"holds 'summary\.json', which no run of descant made"):
        run(data, tmp_path)


def test_a_run_that_was_cut_when_it_began_is_whole_once_it_is_resumed(
    data: dc.FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of it is then as safe as of any other run."""
    run(data, tmp_path)

    replace_until(data, tmp_path, monkeypatch, journal, "replaced")
    dc.resume(tmp_path, dc.Task(torch.nn.Linear(4, 3)), data)
    (tmp_path / "run.json").unlink()
    with pytest.raises(DamagedError, match="of a run that was finished"):
        run(data, tmp_path)


def test_a_mistake_after_the_end_loses_nothing(data: dc.FederatedData, tmp_path: Path) -> None:
    class Mistaken(dc.callbacks.Callback):
        def on_end(self, run: dc.Run) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(data, tmp_path, callbacks=Mistaken())
    assert finished(tmp_path) and not verify(tmp_path)


def test_models_of_the_users_beside_a_runs_own_stay(data: dc.FederatedData, tmp_path: Path) -> None:
    def saving(record: object) -> None:
        (tmp_path / "models").mkdir(exist_ok=True)
        (tmp_path / "models" / "mine.safetensors").write_text("mine")

    run(data, tmp_path, progress=saving)
    assert (tmp_path / "models" / "mine.safetensors").read_text() == "mine"


def test_a_run_that_is_saved_by_hand_replaces_no_file_of_the_users(data: dc.FederatedData, tmp_path: Path) -> None:
    found = dc.simulate(dc.Task(torch.nn.Linear(4, 3)), data, dc.methods.Local(steps=1), rounds=1, mode="vmap")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "summary.json").write_text("mine")
    with pytest.raises(SettingError, match=r"holds 'summary\.json'"):
        found.save(tmp_path / "mine")
    found.save(tmp_path / "new")
    found.save(tmp_path / "new")
    assert not verify(tmp_path / "new") and len(contents(tmp_path / "mine")) == 1


@pytest.mark.parametrize("empty", [(".descant",), ("files.json",), ("run.json", "summary.json")])
def test_with_an_empty_file_nobody_loses_anything(
    data: dc.FederatedData, tmp_path: Path, empty: tuple[str, ...]
) -> None:
    run(data, tmp_path)
    for name in empty:
        (tmp_path / name).write_bytes(b"")
    run(data, tmp_path, overwrite=True)
    assert finished(tmp_path) and not verify(tmp_path)


@pytest.mark.parametrize("last", [0, 1])
def test_a_run_on_disk_may_be_stopped_after_its_best_round(
    data: dc.FederatedData, tmp_path: Path, last: int
) -> None:
    """Its last models are then those of the best round, and lie in one file."""

    class Stopping(dc.callbacks.Callback):
        def on_evaluated(self, round: int, figures: dict[str, float]) -> dc.callbacks.Stop | None:
            return dc.callbacks.Stop("enough") if round == last else None

    found = run(data, tmp_path, store="disk", callbacks=Stopping())
    assert finished(tmp_path) and not verify(tmp_path) and found.stopped is not None
