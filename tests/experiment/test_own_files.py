"""A run's folder may hold the user's own files: none of them is ever removed or replaced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import descant as dc
from descant.errors import SettingError
from descant.experiment import finished, unfinished
from descant.experiment.verify import verify
from tests.experiment.owned import contents, run

FILES = ["run.json", "start.json", "rounds.parquet", "clients.parquet", "federation.parquet", "summary.json"]


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    return dc.data.synthetic(clients=5, samples=20, dim=4, classes=3)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("entry", [*FILES, "state.safetensors", "clients/a.npz", "journal/2026-01-01.md"])
def test_what_the_user_has_by_our_names_is_refused(
    data: dc.FederatedData, tmp_path: Path, entry: str, overwrite: bool
) -> None:
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text("{}")
    name = entry.split("/")[0]
    with pytest.raises(SettingError, match=rf"holds '{name}', which no run of descant made.*move it away"):
        run(data, tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == {entry: b"{}"}


def test_other_files_of_the_users_stay(data: dc.FederatedData, tmp_path: Path) -> None:
    for name in (".notes.tmp", ".run.json.old.tmp", "notes.md"):
        (tmp_path / name).write_text("mine")
    mine = contents(tmp_path)
    run(data, tmp_path)
    run(data, tmp_path, overwrite=True)
    assert mine.items() <= contents(tmp_path).items()


@pytest.mark.parametrize("entry", ["clients/a.npz", "journal/notes.md", "clients/leaf0.bin.bak"])
def test_what_the_user_put_beside_a_run_later_is_refused(
    data: dc.FederatedData, tmp_path: Path, entry: str
) -> None:
    run(data, tmp_path)
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(SettingError, match=f"holds '{entry}'"):
        run(data, tmp_path, overwrite=True)
    assert contents(tmp_path) == before and finished(tmp_path)


@pytest.mark.parametrize("mine", ["my own notes", '{"mine": 1}'])
@pytest.mark.parametrize("name", ["rounds.parquet", "federation.parquet", "summary.json", "state.safetensors"])
def test_what_the_user_wrote_over_a_file_of_a_run_is_refused(
    data: dc.FederatedData, tmp_path: Path, name: str, mine: str
) -> None:
    run(data, tmp_path)
    (tmp_path / name).write_text(mine)
    before = contents(tmp_path)
    with pytest.raises(SettingError, match=f"holds '{name}', which no run of descant made"):
        run(data, tmp_path, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["rounds.parquet", "summary.json", "state.safetensors"])
def test_a_file_of_a_run_that_was_cut_off_is_still_ours(data: dc.FederatedData, tmp_path: Path, name: str) -> None:
    run(data, tmp_path)
    whole = (tmp_path / name).read_bytes()
    for left in (whole[:60], bytes(len(whole))):  # cut off, and as a power cut may leave it
        (tmp_path / name).write_bytes(left)
        run(data, tmp_path, overwrite=True)
        assert not verify(tmp_path)


def test_a_link_is_not_followed_out_of_the_folder(data: dc.FederatedData, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "leaf0.bin").write_text("mine")
    run(data, tmp_path / "run")
    (tmp_path / "run" / "clients").symlink_to(tmp_path / "mine")
    with pytest.raises(SettingError, match="holds 'clients'"):
        run(data, tmp_path / "run", overwrite=True)
    assert (tmp_path / "mine" / "leaf0.bin").read_text() == "mine"


def test_a_run_takes_only_its_own_files_with_it(data: dc.FederatedData, tmp_path: Path) -> None:
    """A mistake in the first round removes what was begun, and nothing else."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.npz").write_text("mine")

    def mistake(record: object) -> None:
        (tmp_path / "clients" / "mine.txt").write_text("put there while it ran")
        raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, SettingError)):
        run(data, tmp_path, store="disk", progress=mistake)
    kept = contents(tmp_path)
    assert kept["clients/mine.txt"] and kept["data/a.npz"] == b"mine"


def test_a_run_that_was_copied_without_its_marker_is_still_ours(data: dc.FederatedData, tmp_path: Path) -> None:
    run(data, tmp_path, store="disk")
    (tmp_path / ".descant").unlink()
    assert "descant" in json.loads((tmp_path / "run.json").read_text())["config"]["versions"]
    run(data, tmp_path, overwrite=True)
    assert finished(tmp_path) and not unfinished(tmp_path) and not (tmp_path / "clients").exists()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "entry",
    [
        "run.json",
        "start.json",
        "summary.json",
        "clients.parquet",
        "health.parquet",
        "state.safetensors",
        "files.json",
    ],
)
def test_a_marker_alone_does_not_make_a_file_ours(
    data: dc.FederatedData, tmp_path: Path, entry: str, overwrite: bool
) -> None:
    """The run was removed by hand, its hidden marker was not, and then the user wrote something there."""
    run(data, tmp_path)
    for path in tmp_path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".descant":
            path.unlink()
    mine = '{"mine": 1}' if entry.endswith("json") else "mine"
    (tmp_path / entry).write_text(mine)
    with pytest.raises(SettingError, match=rf"holds '{entry}', which no run of descant made"):
        run(data, tmp_path, overwrite=overwrite)
    assert (tmp_path / entry).read_text() == mine


def test_a_table_of_the_users_is_told_by_the_names_of_its_columns(data: dc.FederatedData, tmp_path: Path) -> None:
    run(data, tmp_path)
    (tmp_path / "run.json").unlink()
    own = {name: [1] for name in ("client_id", "model_of_round", "gradients_", "bytes_up_", "bytes_down_")}
    pl.DataFrame(own).write_parquet(tmp_path / "clients.parquet")
    with pytest.raises(SettingError, match=r"holds 'clients\.parquet', which no run of descant made"):
        run(data, tmp_path, overwrite=True)


@pytest.mark.parametrize("link", [False, True])
def test_a_marker_of_the_users_is_none(data: dc.FederatedData, tmp_path: Path, link: bool) -> None:
    (tmp_path / "mine").write_text("my own")
    if link:
        (tmp_path / ".descant").symlink_to(tmp_path / "mine")
    else:
        (tmp_path / ".descant").write_text("my own")
    (tmp_path / "summary.json").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(SettingError, match=r"holds '\.descant', which no run of descant made"):
        run(data, tmp_path)
    assert contents(tmp_path) == before and (tmp_path / ".descant").is_symlink() == link


@pytest.mark.parametrize("entry", ["files.json", "health.parquet", "start.json"])
def test_a_run_is_not_overwritten_with_what_it_never_had(
    data: dc.FederatedData, tmp_path: Path, entry: str
) -> None:
    run(data, tmp_path)
    (tmp_path / entry).write_text('{"mine": 1}')
    before = contents(tmp_path)
    with pytest.raises(SettingError, match=f"holds '{entry}', which no run of descant made"):
        run(data, tmp_path, overwrite=True)
    assert contents(tmp_path) == before
