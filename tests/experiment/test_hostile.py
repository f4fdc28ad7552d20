"""Folders that somebody else made: nothing of theirs is run, followed out of the folder, or read without end."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import descant as dc
from descant.errors import DamagedError, SettingError
from descant.experiment.settings import RunSettings
from descant.sealed import entry_of, read_json, write_tensors
from tests.experiment.small import begin, reseal, resume

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 5, "samples": 20, "dim": 4, "classes": 3},
    "method": {"name": "local", "steps": 1},
    "rounds": 3,
    "mode": "vmap",
    "commit": 1,
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("field", ["method", "data", "model", "aggregator"])
def test_import_paths_of_a_folder_are_followed_only_if_allowed(
    tmp_path: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunSettings.of(SETTINGS).execute(tmp_path / "run", progress=stop)
    (tmp_path / "stranger.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\ndef mine(*a): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    config = read_json(tmp_path / "run" / "start.json")[0]["config"]
    config["settings"][field] = {"name": "stranger:mine"}
    reseal(tmp_path / "run" / "start.json", config=config)
    with pytest.raises(SettingError, match=r"'stranger:mine' is an import path.*--allow-imports"):
        dc.resume(tmp_path / "run")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(Exception):  # noqa: B017 (whatever the stranger's code comes to)
        dc.resume(tmp_path / "run", allow_imports=True)
    assert (tmp_path / "ran").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["start.safetensors", "start.json", "journal", "clients", "clients/leaf0.bin"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    begin(tmp_path / "run", stop=3)
    (tmp_path / "run" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").stat().st_mtime_ns
    with pytest.raises((SettingError, DamagedError), match=f"{name}('|.* is no plain file)"):
        resume(tmp_path / "run")
    assert (tmp_path / "elsewhere").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["run.json", "rounds.parquet", "clients.parquet"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    begin(tmp_path, store="memory", rounds=1)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises((DamagedError, FileNotFoundError), match=name):
        dc.load(tmp_path)


def test_claims_without_end_are_refused(tmp_path: Path) -> None:
    begin(tmp_path, store="memory", rounds=1)
    path = tmp_path / "rounds.parquet"
    pl.select(pl.repeat(0, 5 * 10**7).alias("round")).write_parquet(path)
    about, _ = read_json(tmp_path / "run.json")
    reseal(tmp_path / "run.json", files=about["files"] | {path.name: entry_of(path)})
    with pytest.raises(DamagedError, match=r"rounds\.parquet claims to hold 50000000 rows"):
        dc.load(tmp_path)
    (tmp_path / "run.json").write_text("[" * 10**6)
    with pytest.raises(DamagedError, match=r"run\.json is damaged"):
        dc.load(tmp_path)
    with open(tmp_path / "run.json", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedError, match=r"run\.json has 1099511627776 bytes"):
        dc.load(tmp_path)


def test_a_commit_that_claims_more_segments_than_there_are_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, stop=3, store="memory")
    (commit,) = (tmp_path / "journal").glob("commit-*")
    start = json.loads((tmp_path / "start.json").read_text())["checksum"]
    write_tensors(commit, {}, {"round": 3, "begun": start, "base": 2, "segments": 10**15, "history": ""})
    with pytest.raises(DamagedError, match="holds no commit that this version knows"):
        resume(tmp_path)


def test_a_start_that_says_nothing_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, stop=3, store="memory")
    for change in ({"config": []}, {"config": {}}, {"fingerprints": 3}):
        reseal(tmp_path / "start.json", **change)
        with pytest.raises(DamagedError, match=r"start\.json does not say what a run follows from"):
            resume(tmp_path)


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SettingError, match=r"the file system of .* has no locks .* choose a folder on another"):
        begin(tmp_path, rounds=1)


@pytest.mark.parametrize("prints", [3, None, ["data"], {"data": 3}], ids=str)
def test_fingerprints_that_are_no_text_are_damage(tmp_path: Path, prints: Any) -> None:
    begin(tmp_path, store="memory", rounds=1)
    reseal(tmp_path / "run.json", fingerprints=prints)
    with pytest.raises(DamagedError, match=r"run\.json does not say what the run followed from"):
        dc.load(tmp_path)
