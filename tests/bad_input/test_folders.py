"""Any damaged file of a run's folder, and folders that hold no run, from the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from descant.cli.main import TRACEBACK
from descant.experiment.folder import START
from tests.bad_input.calling import COMPARISON, GOOD, Done, descant, refused

SPOIL: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "junk": lambda file: file.write_bytes(b"\xff\xfe{junk" * 40),
    "json": lambda file: file.write_text("{}"),
    "list": lambda file: file.write_text("[1, 2]"),
    "missing": lambda file: file.unlink(),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "flipped": lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and a finished comparison, and the files that they came from."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "run.yaml").write_text(GOOD)
    (folder / "two.yaml").write_text(COMPARISON)
    assert descant("run", "run.yaml", "-q", cwd=folder).status == 0
    assert descant("compare", "two.yaml", "-q", cwd=folder).status == 0
    return folder


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was interrupted after its first round."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "stopping.py").write_text(
        "from dataclasses import dataclass\nfrom pathlib import Path\nfrom descant.methods import FedAvg\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Stopping(FedAvg):\n"
        "    def broadcast(self, server):\n"
        "        if server.ctx.round == 2 and not Path('go-on').exists():\n            raise KeyboardInterrupt\n"
        "        return super().broadcast(server)\n"
    )
    text = GOOD.replace("name: fedavg", "name: stopping:Stopping").replace("rounds: 1", "rounds: 3\ncommit: 1")
    (folder / "run.yaml").write_text(text)
    done = descant("run", "run.yaml", "-q", cwd=folder)
    assert (
        done.status == 130
        and "descant resume --allow-imports runs/run" in done.err
        and (folder / "runs/run" / START).is_file()
    )
    return folder


def files(folder: Path) -> list[str]:
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.name != ".descant")


def fine(done: Done) -> None:
    """A result, or one line on each damaged file."""
    assert done.status in (0, 2) and "Traceback" not in done.err and TRACEBACK not in done.err, done
    assert done.status == 0 or done.err.startswith("descant: "), done


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", SPOIL)
def test_a_damaged_file_of_a_finished_run_is_named_or_harmless(finished: Path, tmp_path: Path, harm: str) -> None:
    for file in files(finished / "runs" / "run"):
        folder = tmp_path / file.replace("/", "-")
        shutil.copytree(finished / "runs" / "run", folder / "runs" / "run")
        SPOIL[harm](folder / "runs" / "run" / file)
        checked = descant("verify", "runs/run", cwd=folder)
        refused(checked, file, "holds no run", "there is no run in it")
        fine(descant("report", "runs/run", "--format", "csv", "-o", "tables", cwd=folder))
        fine(descant("resume", "runs/run", "-q", cwd=folder))


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", SPOIL)
def test_a_damaged_file_of_an_unfinished_run_is_named_or_harmless(begun: Path, tmp_path: Path, harm: str) -> None:
    for file in files(begun / "runs" / "run"):
        folder = tmp_path / file.replace("/", "-")
        shutil.copytree(begun, folder)
        SPOIL[harm](folder / "runs" / "run" / file)
        fine(descant("verify", "runs/run", cwd=folder))
        told = ("descant resume", "holds no finished run", "start.json is missing, of a run that was begun")
        refused(descant("report", "runs/run", cwd=folder), *told)
        (folder / "go-on").touch()
        fine(descant("resume", "runs/run", "-q", "--allow-imports", cwd=folder))


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", ["empty", "junk", "missing", "folder"])
def test_a_damaged_cell_of_a_comparison_is_named_or_run_again(finished: Path, tmp_path: Path, harm: str) -> None:
    [cell, *_] = sorted((finished / "runs" / "two").iterdir())
    for name in ("run.json", "rounds.parquet", "files.json"):
        folder = tmp_path / name
        shutil.copytree(finished, folder)
        SPOIL[harm](folder / "runs" / "two" / cell.name / name)
        fine(descant("compare", "two.yaml", "-q", cwd=folder))


def test_verify_says_that_a_run_is_unfinished_and_how_to_go_on(begun: Path, finished: Path) -> None:
    done = descant("verify", "runs", cwd=begun)
    assert (
        done.status == 0
        and "runs/run is whole, but unfinished; go on with: descant resume --allow-imports runs/run" in done.out
    )
    assert "unfinished" not in descant("verify", "runs", cwd=finished).out


def test_report_and_load_point_to_resume(begun: Path) -> None:
    refused(descant("report", "runs/run", cwd=begun), "runs/run is unfinished: go on with it first (descant resume")


@pytest.mark.parametrize("command", ["report", "verify", "resume"])
@pytest.mark.parametrize("what", ["nowhere", "file", "empty"])
def test_what_is_no_folder_of_runs_is_named(tmp_path: Path, command: str, what: str) -> None:
    (tmp_path / "file").write_text("words")
    (tmp_path / "empty").mkdir()
    refused(descant(command, what, cwd=tmp_path), what)


CALLED: list[tuple[str, ...]] = [
    ("run", "nowhere.yaml"),
    ("run", "empty"),
    ("run", "run.yaml", "-o", "file"),
    ("run", "run.yaml", "-o", "file/below"),
    ("run", "run.yaml", "-o", "a" * 300),
    ("compare", "nowhere.yaml"),
    ("compare", "empty"),
    ("data", "show", "nowhere.yaml"),
    ("data", "show", "run.yaml", "--format", "html", "-o", "empty/" + "a" * 300 + ".html"),
    ("data", "show", "run.yaml", "--format", "html", "-o", "empty"),
    ("data", "fetch", "nothing"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("call", CALLED, ids=[" ".join(call)[:50] for call in CALLED])
def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path, call: tuple[str, ...]) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    (tmp_path / "file").write_text("words")
    (tmp_path / "empty").mkdir()
    refused(descant(*call, cwd=tmp_path), call[-1])
