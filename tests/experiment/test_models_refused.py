"""Models that a run does not hand out: damaged, somebody else's, or of another module."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.errors import DamagedError, NoModelError, SettingError
from descant.experiment.verify import verify
from descant.sealed import read_json, write_json
from tests.experiment.conftest import Finished
from tests.experiment.kept import SOME
from tests.experiment.small import Net, begin, reseal, resume, task


class Other(Net):
    """The same tensors, and another forward."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(torch.relu(self.norm(self.random(inputs + self.shift))))
        return outputs


class Wider(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 4)


def test_a_module_that_is_not_the_runs_is_refused(done: Finished) -> None:
    live, run = done.run, dc.load(done.folder)
    with pytest.raises(SettingError, match=r"made in Python.*run\.personal\(0, model=MyNet\(\)\)"):
        run.personal(0)
    for each in (live, run):
        with pytest.raises(
            SettingError, match=r"'head\.(weight|bias)' is \[4(, 5)?\] of float32, and was \[3(, 5)?\] of float32"
        ):
            each.personal(0, model=Wider())
        with pytest.raises(SettingError, match=r"is .* of float64, and was .* of float32"):
            each.personal(0, model=Net().double())
        with pytest.raises(SettingError, match="code of its forward differ"):
            each.personal(0, model=Other())
        with pytest.raises(SettingError, match="model is a Task"):
            each.personal(0, model=task())  # type: ignore[arg-type]
    mine = Net()
    before = {name: t.clone() for name, t in mine.state_dict().items()}
    run.personal(0, model=mine)
    assert all(torch.equal(before[name], t) for name, t in mine.state_dict().items()), "what is handed in stays"


def test_damaged_models_of_an_unfinished_run_are_named(tmp_path: Path) -> None:
    begin(tmp_path, stop=8, store="memory", **SOME)
    path = next((tmp_path / "models").glob("personal-*"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    [said] = verify(tmp_path)
    assert path.name in said
    with pytest.raises(DamagedError, match=path.name):
        resume(tmp_path)
    path.unlink()
    with pytest.raises(DamagedError, match=rf"{path.name} is missing"):
        resume(tmp_path)


@pytest.mark.parametrize("kind", ["personal", "shared", "selected"])
def test_a_damaged_file_of_models_is_named(done: Finished, tmp_path: Path, kind: str) -> None:
    done.copied(tmp_path / "run")
    name = f"{kind}-{done.run.summary()[f'{kind}.round@chosen_on_valid']:08d}.safetensors"
    path = tmp_path / "run" / "models" / name
    raw, other = path.read_bytes(), next(f for f in path.parent.glob(f"{kind}-*") if f != path)
    for damaged in (raw[:-1] + bytes([raw[-1] ^ 1]), raw[:-3], b"", other.read_bytes(), None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=name):
            dc.load(tmp_path / "run").models.module(kind, 0, "chosen", Net())
        assert [said for said in verify(tmp_path / "run") if name in said]


def test_a_folder_cannot_name_files_of_somebody_elses(done: Finished, tmp_path: Path) -> None:
    run = dc.load(done.copied(tmp_path / "run"))
    at = run.summary()["personal.round@chosen_on_valid"]
    (tmp_path / "run" / "models").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=rf"personal-{at:08d}\.safetensors lies behind a link"):
        run.personal(0, model=Net())
    about, _ = read_json(tmp_path / "run" / "run.json")
    for kind, file in (("personal", "../secret.safetensors"), ("../x", f"models/../x-{at:08d}.safetensors")):
        listed = about["models"] | {"chosen": {kind: {"round": at, "file": file, "checksum": ""}}}
        reseal(tmp_path / "run" / "run.json", models=listed)
        with pytest.raises(DamagedError, match="does not say which models it keeps"):
            dc.load(tmp_path / "run")


def test_a_folder_of_a_version_without_models_says_so(done: Finished, tmp_path: Path) -> None:
    folder = done.copied(tmp_path / "run")
    about, _ = read_json(folder / "run.json")
    del about["models"], about["config"]["keep_models"]
    write_json(folder / "run.json", about)
    with pytest.raises(NoModelError, match=r"a version of descant that kept no models; state\.safetensors"):
        dc.load(folder).personal(0, model=Net())
