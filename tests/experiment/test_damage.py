"""What is missing, stale, changed or of another run is refused by name; nothing of it is gone on from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import descant as dc
from descant.errors import DamagedError, ResumeError, SettingError
from descant.experiment.verify import runs_in, verify
from tests.experiment.small import DATA, Net, begin, copied, reseal, result, resume, task


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on disk, interrupted after a flush (of round 17) and three more commits."""
    folder = tmp_path_factory.mktemp("broken")
    begin(folder, stop=20)
    commits = sorted(file.name for file in (folder / "journal").glob("commit-*"))
    assert commits == [f"commit-{r:08d}.safetensors" for r in (17, 18, 19, 20)]
    return folder


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, interrupted before."""
    folder = tmp_path_factory.mktemp("early")
    begin(folder, stop=10)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("unbroken")
    begin(folder)
    return result(folder)


@pytest.mark.few(1)
@pytest.mark.parametrize("store", ["disk", "memory"])
def test_a_module_that_was_initialised_anew_goes_on_from_the_first_model_in_the_folder(
    broken: Path, expected: str, tmp_path: Path, store: str
) -> None:
    folder = tmp_path / "run"
    if store == "disk":
        copied(broken, folder)
    else:
        begin(folder, stop=9, store="memory", commit=4)
    resume(folder, seed=5)
    found, wanted = json.loads(result(folder)), json.loads(expected)
    for name in ("rounds", "clients") if store == "memory" else ("rounds", "clients", "models", "rows"):
        assert found[name] == wanted[name]


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (
            lambda f: (f / "journal" / "commit-00000019.safetensors").unlink(),
            "commit-00000019.safetensors is missing",
        ),
        (
            lambda f: (f / "journal" / "commit-00000018.safetensors").unlink(),
            "commit-00000018.safetensors is missing",
        ),
        (
            lambda f: [c.unlink() for c in (f / "journal").glob("commit-*")],
            "commit-00000017.safetensors is missing",
        ),
        (
            lambda f: (f / "journal" / "segment-00000004.safetensors").unlink(),
            "segment-00000004.safetensors is missing",
        ),
        (lambda f: (f / "clients" / "leaf0.bin").unlink(), r"leaf0\.bin is missing"),
        (lambda f: (f / "clients" / "leaf0.bin").write_bytes(b""), r"leaf0\.bin has 0 bytes"),
        (lambda f: (f / "clients" / "leaves.json").unlink(), r"leaves\.json is missing"),
        (lambda f: (f / "clients" / "sums.bin").unlink(), r"sums\.bin is missing"),
        (lambda f: shutil.rmtree(f / "clients"), r"leaves\.json is missing"),
        (lambda f: (f / "start.safetensors").unlink(), r"start\.safetensors is missing"),
        (lambda f: reseal(f / "start.json", spare=1), "is a commit of another run than start.json began"),
    ],
)
def test_what_is_missing_is_named(broken: Path, tmp_path: Path, harm: Callable[[Path], object], named: str) -> None:
    folder = copied(broken, tmp_path / "run")
    harm(folder)
    with pytest.raises(DamagedError, match=named):
        resume(folder)


def test_rows_of_an_earlier_moment_are_refused(broken: Path, early: Path, tmp_path: Path) -> None:
    """A copy that was taken file by file while the run went on."""
    for name in ("leaf0.bin", "sums.bin"):
        folder = copied(broken, tmp_path / "run")
        shutil.copy(early / "clients" / name, folder / "clients" / name)
        with pytest.raises(DamagedError, match=r"leaf\d\.bin (holds rows of another moment|is damaged)"):
            resume(folder)


def test_commits_that_came_back_from_before_a_flush_change_nothing(
    broken: Path, early: Path, expected: str, tmp_path: Path
) -> None:
    folder = copied(broken, tmp_path / "run")
    for commit in (early / "journal").glob("commit-*"):
        shutil.copy(commit, folder / "journal" / commit.name)
    resume(folder)
    assert result(folder) == expected


def test_fewer_rounds_than_there_are_is_another_run(broken: Path, tmp_path: Path) -> None:
    folder = copied(broken, tmp_path / "run")
    start = json.loads((folder / "start.json").read_text())
    reseal(folder / "start.json", config=start["config"] | {"rounds": 5})
    with pytest.raises(DamagedError, match=r"commit-00000018\.safetensors is a commit of another run"):
        resume(folder)


def test_an_edited_start_is_refused(broken: Path, tmp_path: Path) -> None:
    folder = copied(broken, tmp_path / "run")
    text = (folder / "start.json").read_text()
    (folder / "start.json").write_text(text.replace('"rounds": 22', '"rounds": 30'))
    with pytest.raises(DamagedError, match=r"start\.json is damaged, or was changed by hand.*overwrite"):
        resume(folder)


def test_another_forward_or_loss_by_the_same_name_is_refused(broken: Path, tmp_path: Path) -> None:
    def other(self: Net, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.head(torch.relu(self.norm(self.random(inputs + self.shift))))
        return hidden

    class Other(Net):
        forward = other

    Other.__qualname__, Other.__name__ = Net.__qualname__, Net.__name__
    with pytest.raises(ResumeError, match="begun with another model"):
        dc.resume(broken, task(net=Other), DATA)

    def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    model = task().model
    with pytest.raises(ResumeError, match="begun with another loss"):
        dc.resume(broken, dc.Task(model, cross_entropy, task().metric), DATA)
    metric = dc.Metric("accuracy", lambda outputs, targets: outputs[:, 0], higher_is_better=True)
    with pytest.raises(ResumeError, match="begun with another metric"):
        dc.resume(broken, dc.Task(model, metric=metric), DATA)


def unsealed(folder: Path, name: str) -> None:
    """A JSON file as the first format had it."""
    value = json.loads((folder / name).read_text()) | {"format": 1}
    (folder / name).write_text(json.dumps({k: v for k, v in value.items() if k not in ("checksum", "files")}))


def test_a_run_of_the_first_format_is_read_and_not_resumed(broken: Path, tmp_path: Path) -> None:
    folder = copied(broken, tmp_path / "run")
    unsealed(folder, "start.json")
    with pytest.raises(ResumeError, match=r"begun in format 1.*finish it with the version"):
        resume(folder)
    with pytest.raises(SettingError, match="holds an unfinished run"):
        begin(folder)
    run = begin(folder, overwrite=True, rounds=2)
    assert run is not None
    unsealed(folder, "run.json")
    assert dc.load(folder).clients.equals(run.clients)


def test_a_finished_run_without_its_settings_is_named(tmp_path: Path) -> None:
    begin(tmp_path / "one", rounds=2)
    begin(tmp_path / "two", rounds=2, store="memory")
    with pytest.raises(SettingError, match="there is no such folder"):
        runs_in([tmp_path / "nowhere"])
    assert not verify(tmp_path / "one") and runs_in([tmp_path]) == [tmp_path / "one", tmp_path / "two"]
    (tmp_path / "two" / "run.json").unlink()
    assert runs_in([tmp_path]) == [tmp_path / "one", tmp_path / "two"]
    [said] = verify(tmp_path / "two")
    assert said.startswith(f"{tmp_path / 'two' / 'run.json'} is missing, of a run that was finished: ")
    with pytest.raises(DamagedError, match=r"run\.json is missing, of a run that was finished: .* with overwrite"):
        begin(tmp_path / "two", rounds=2)
    with pytest.raises(DamagedError, match=r"run\.json is missing, of a run that was finished: .* with overwrite"):
        resume(tmp_path / "two")
    assert (tmp_path / "two" / "summary.json").is_file(), "nothing was removed"
    assert begin(tmp_path / "two", rounds=2, overwrite=True) and not verify(tmp_path / "two")
    (tmp_path / "two" / "run.json").unlink()
    assert verify(tmp_path / "two"), "of a run that has replaced another, too"


def test_a_run_that_was_cut_off_while_it_replaced_another_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path, rounds=2)

    def cut(folder: Path) -> None:
        (folder / "run.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("descant.experiment.journal.remove_run", cut)
        begin(tmp_path, rounds=2, overwrite=True)
    assert (tmp_path / "summary.json").is_file()
    with pytest.raises(SettingError, match="no run"):
        runs_in([tmp_path])
    assert begin(tmp_path, rounds=2) and not verify(tmp_path)
