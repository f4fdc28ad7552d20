"""Where a command cannot leave what it makes, it says so in a sentence: which path, why, and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import descant as dc
from descant.errors import SettingError
from descant.files import claim_folder, told, write
from tests.bad_input.calling import COMPARISON, GOOD, descant, refused, without_training

COMMANDS: dict[str, list[str]] = {
    "run": ["run", "run.yaml", "-q", "-o"],
    "compare": ["compare", "two.yaml", "-q", "-o"],
    "budget": ["budget", "two.yaml", "--target", "0.5", "-q", "-o"],
    "robustness": ["robustness", "table.yaml", "-q", "-o"],
    "demo": ["demo", "-q", "-o"],
    "theory": ["theory", "-q", "-o"],
    "report": ["report", "runs/run", "--format", "csv", "-o"],
    "export": ["export", "runs/run"],
    "data show": ["data", "show", "run.yaml", "--format", "png", "-o"],
}
PLACES = {
    "taken": "choose another",  # a file
    "taken/below.html": "is a file; choose another place",
    **({"/proc/no.html": "choose another place"} if Path("/proc/self").exists() else {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    (folder / "run.yaml").write_text(GOOD)
    (folder / "two.yaml").write_text(COMPARISON)
    (folder / "table.yaml").write_text(f"{COMPARISON}attacks: [sign-flip]\nfractions: [0.4]\n")
    (folder / "taken").write_text("mine")
    assert descant("run", "run.yaml", "-q", cwd=folder).status == 0
    return folder


@pytest.mark.few(100)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_cannot_be_is_told_with_a_remedy(folder: Path, command: str, place: str) -> None:
    said = PLACES[place]
    place = place.replace(".html", ".png") if command == "data show" else place
    with without_training():
        done = descant(*COMMANDS[command], place, cwd=folder)
    if place == "taken" and command in ("report", "data show"):
        return refused(done, "'taken' is a file: name a folder" if command == "report" else "that ends in .png")
    refused(done, said)
    assert "Errno" not in done.err and place.split("/below")[0] in done.err
    assert (folder / "taken").read_text() == "mine"


@pytest.mark.few(100)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_name_is_no_place(folder: Path, command: str) -> None:
    before = sorted(folder.iterdir())
    with without_training():
        done = descant(*COMMANDS[command], "", cwd=folder)
    refused(
        done, "'DIR' is an empty name" if command == "export" else "'--out' / '-o' is an empty name: give a path"
    )
    assert sorted(folder.iterdir()) == before


def test_an_empty_name_is_no_file_and_no_folder_to_read_either(folder: Path) -> None:
    refused(descant("run", "", cwd=folder), "'FILE.yaml' is an empty name")
    refused(descant("resume", "", cwd=folder), "'DIR' is an empty name")
    refused(descant("verify", "runs/run", "", cwd=folder), "'DIR...' is an empty name")


def test_an_empty_out_is_refused_in_python_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = dc.data.synthetic(clients=3, samples=12)
    with pytest.raises(
        SettingError, match=r"^out = '': it must be the path of a folder, or '\.' for the current one$"
    ):
        dc.simulate(dc.models.linear(data), data, "fedavg", rounds=1, out="")
    assert not list(tmp_path.iterdir())


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    said = f"a link to '{tmp_path / 'gone'}', which does not exist; make that folder, or choose another place$"
    with pytest.raises(SettingError, match=f"^out = '{tmp_path / 'link'}' cannot be made: it is {said}"):
        claim_folder(tmp_path / "link", "out")
    with pytest.raises(SettingError, match=f"/run' cannot be made: '{tmp_path / 'link'}' is {said}"):
        claim_folder(tmp_path / "link" / "run")


def test_a_page_too(folder: Path) -> None:
    refused(
        descant("report", "runs/run", "-o", "taken/page.html", cwd=folder), "it is a file; choose another place"
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "permission is denied; choose another place, or change the permissions"),
        (errno.EROFS, "what lies there can only be read; choose another place"),
        (errno.ENOSPC, "the disk is full; make room, or choose another place"),
        (errno.ENAMETOOLONG, "the name is too long; choose a shorter one"),
        (errno.EIO, f"{os.strerror(errno.EIO)}; choose another place"),
    ],
    ids=lambda value: errno.errorcode.get(value, "") if isinstance(value, int) else "",
)
def test_errors_of_the_system_are_told_in_words(
    tmp_path: Path, number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(OSError) as caught:
        write(tmp_path / "page.html", fails)
    assert told(caught.value) == f"'{tmp_path / 'page.html'}' cannot be read or written: {said}"
    monkeypatch.setattr(Path, "mkdir", fails)
    with pytest.raises(SettingError, match=f"new' cannot be made: {said}$"):
        claim_folder(tmp_path / "new")


def test_a_folder_that_is_there_and_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def may(path: Any, mode: int) -> bool:
        return mode != os.W_OK | os.X_OK

    monkeypatch.setattr(os, "access", may)
    with pytest.raises(SettingError, match=r"the folder .* cannot be written to: permission is denied; choose"):
        claim_folder(tmp_path)
