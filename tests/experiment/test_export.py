"""Exported models run without descant, are what the run kept, and replace nothing unasked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import descant as dc
from descant.errors import SettingError
from descant.experiment import export as module
from descant.experiment import programs
from descant.experiment.settings import RunSettings
from tests.experiment.small import DATA, Net, begin

ALONE = """
import sys
sys.modules["descant"] = None  # as where it is not installed
import json, numpy, torch
from pathlib import Path
folder, found = Path(sys.argv[1]), {}
inputs = torch.from_numpy(numpy.load(folder / "inputs.npy"))
for entry in json.loads((folder / "index.json").read_text())["models"]:
    model = torch.export.load(folder / entry["files"]["pt2"]).module()
    assert torch.allclose(model(inputs[:1]), model(inputs)[:1], atol=1e-6)
    found[entry["files"]["pt2"]] = model(inputs).tolist()
print(json.dumps(found))
"""


def alone(folder: Path, inputs: Tensor) -> dict[str, Tensor]:
    """What the programs in a folder predict, in a process without descant."""
    np.save(folder / "inputs.npy", inputs.numpy())
    done = subprocess.run([sys.executable, "-c", ALONE, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: torch.tensor(outputs) for name, outputs in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a module of one's own, with running statistics."""
    where = tmp_path_factory.mktemp("export") / "run"
    begin(where, store="memory", rounds=6, evaluate=dc.Evaluation(models=("personal", "shared", "selected")))
    return where


@pytest.mark.slow
@pytest.mark.parametrize("round", ["chosen", "last"])
def test_programs_predict_what_the_runs_models_do_where_descant_is_not(
    folder: Path, tmp_path: Path, round: Any
) -> None:
    run = dc.load(folder)
    written = run.export(tmp_path / "out", round=round, model=Net())
    assert sorted(written) == sorted((tmp_path / "out").iterdir()) and written[-1].name == "index.json"
    index = json.loads(written[-1].read_text())
    assert index["metric"] == "accuracy" and index["rounds"] == round and len(index["models"]) == len(DATA) + 1
    inputs = DATA.test.inputs
    outputs = alone(tmp_path / "out", inputs)
    rule = "last" if round == "last" else "chosen_on_valid"
    for entry in index["models"]:
        kind, client = entry["model"], entry.get("number")
        kept = run.models.module(kind, client, round, Net())
        assert torch.equal(outputs[entry["files"]["pt2"]], kept(inputs).detach())
        weights = load_file(tmp_path / "out" / entry["files"]["safetensors"])
        again = Net()
        again.load_state_dict(weights)
        assert torch.equal(again.eval()(inputs), kept(inputs))
        assert entry["round"] == run.summary()[f"{kind}.round@{rule}"]
        if client is not None:
            assert entry["client"] == DATA.clients[client]
            x, y = DATA.test.client(client)
            assert entry["figures"]["test_accuracy"] == (kept(x).argmax(1) == y).double().mean().item()
    assert not torch.equal(outputs["00-0.pt2"], outputs["01-1.pt2"])


def test_nothing_is_pickled(folder: Path, tmp_path: Path) -> None:
    dc.load(folder).export(tmp_path, clients=[3], model=Net())
    with zipfile.ZipFile(tmp_path / "03-3.pt2") as archive:
        for name in archive.namelist():
            raw = archive.read(name)
            assert not name.endswith(".pkl") and not raw.startswith((b"\x80", b"PK")), name
            assert b'"use_pickle":true' not in raw.replace(b" ", b""), name


def test_some_clients_and_other_models(folder: Path, tmp_path: Path) -> None:
    run = dc.load(folder)
    run.export(tmp_path, clients=["7", 2], models=["selected"], programs=False)
    assert {file.name for file in tmp_path.iterdir()} == {
        "selected-07-7.safetensors",
        "selected-02-2.safetensors",
        "index.json",
    }
    kept = run.selected("7", model=Net()).state_dict()
    weights = load_file(tmp_path / "selected-07-7.safetensors")
    assert kept.keys() == weights.keys() and all(torch.equal(kept[name], weights[name]) for name in kept)
    with pytest.raises(SettingError, match="client = 'Ulm'"):
        run.export(tmp_path, clients=["Ulm"], programs=False)
    with pytest.raises(SettingError, match="no kind of model called 'best'"):
        run.export(tmp_path, models=["best"], programs=False)


def test_a_module_of_ones_own_is_asked_for(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"made in Python.*--weights-only"):
        dc.load(folder).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_there_are_replaced_only_when_asked(folder: Path, tmp_path: Path) -> None:
    run = dc.load(folder)
    (tmp_path / "notes.md").write_text("mine")
    run.export(tmp_path, clients=[3], programs=False)
    before = (tmp_path / "03-3.safetensors").stat().st_mtime_ns
    with pytest.raises(SettingError, match=r"index\.json' is there already: .*\(--overwrite\)"):
        run.export(tmp_path, clients=[3], programs=False)
    assert (tmp_path / "03-3.safetensors").stat().st_mtime_ns == before
    run.export(tmp_path, clients=[3], programs=False, overwrite=True)
    assert (tmp_path / "03-3.safetensors").stat().st_mtime_ns > before
    assert (tmp_path / "notes.md").read_text() == "mine"
    with pytest.raises(SettingError, match="is no folder"):
        run.export(tmp_path / "notes.md", programs=False)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["03-3.safetensors", "index.json"])
def test_a_file_that_descant_did_not_write_is_kept_and_named(
    folder: Path, tmp_path: Path, name: str, overwrite: bool
) -> None:
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(SettingError, match=rf"{name}' .*, and descant did not write it: move it away, or choose"):
        dc.load(folder).export(tmp_path, clients=[3], programs=False, overwrite=overwrite)
    assert [file.name for file in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == '{"mine": 1}'


@pytest.mark.parametrize("name", ["03-3.safetensors", "index.json"])
def test_a_file_that_was_changed_since_is_kept_and_named(folder: Path, tmp_path: Path, name: str) -> None:
    run = dc.load(folder)
    run.export(tmp_path, clients=[3], programs=False)
    changed = (tmp_path / name).read_bytes().replace(b"3", b"4", 1)
    (tmp_path / name).write_bytes(changed)
    with pytest.raises(SettingError, match=rf"{name}' was changed since descant wrote it: move it away, or choose"):
        run.export(tmp_path, clients=[3], programs=False, overwrite=True)
    assert (tmp_path / name).read_bytes() == changed


def test_files_of_an_export_before_there_were_checksums_are_replaced(folder: Path, tmp_path: Path) -> None:
    run = dc.load(folder)
    run.export(tmp_path, clients=[3, 4], programs=False)
    index = json.loads((tmp_path / "index.json").read_text())
    del index["checksum"]
    for entry in index["models"]:
        del entry["checksums"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "03-3.safetensors").write_text("as another version wrote it")
    run.export(tmp_path, clients=[3], programs=False, overwrite=True)
    assert load_file(tmp_path / "03-3.safetensors")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["03-3.safetensors", "index.json"]


def test_an_export_that_was_stopped_is_begun_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = dc.load(folder)
    run.export(tmp_path, clients=[3, 4], programs=False)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "_entry", stop)  # once the first file is there
        run.export(tmp_path, clients=[2, 3], programs=False, overwrite=True)
    assert (tmp_path / "02-2.safetensors").exists()
    assert json.loads((tmp_path / "index.json").read_text())["unfinished"]
    run.export(tmp_path, clients=[2], programs=False, overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["02-2.safetensors", "index.json"]
    assert "unfinished" not in json.loads((tmp_path / "index.json").read_text())


@pytest.mark.parametrize(("inside", "said"), [("", "is"), ("models", "lies in"), ("models/deep", "lies in")])
def test_models_are_not_exported_into_the_folder_of_a_run(folder: Path, inside: str, said: str) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(
        SettingError, match=rf"'{folder / inside}' {said} the folder of a run, '{folder}': choose another"
    ):
        dc.load(folder).export(folder / inside, clients=[3], programs=False, overwrite=True)
    assert sorted(folder.rglob("*")) == before


def test_models_may_be_exported_into_a_folder_of_the_users_beside_a_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    out = tmp_path / "run" / "mine" / "models"
    assert dc.load(tmp_path / "run").export(out, clients=[3], programs=False)[-1] == out / "index.json"


def test_an_export_in_the_place_of_another_leaves_nothing_of_it_and_all_of_others(
    folder: Path, tmp_path: Path
) -> None:
    run, out = dc.load(folder), tmp_path / "out"
    run.export(out, programs=False)
    assert len(list(out.iterdir())) == len(DATA) + 2
    theirs = {"notes.md", "99-mine.safetensors", "03-3.pt2"}  # also by a name as ours, where the index lists none
    for name in theirs:
        (out / name).write_text("mine")
    run.export(out, clients=[3, 4], programs=False, overwrite=True)
    assert {file.name for file in out.iterdir()} == {"03-3.safetensors", "04-4.safetensors", "index.json"} | theirs
    assert all((out / name).read_text() == "mine" for name in theirs)


def test_what_was_changed_since_an_earlier_export_is_not_removed(folder: Path, tmp_path: Path) -> None:
    run, out = dc.load(folder), tmp_path / "out"
    run.export(out, programs=False)
    (out / "01-1.safetensors").write_text("trained further by me")
    run.export(out, clients=[3], programs=False, overwrite=True)
    assert sorted(file.name for file in out.iterdir()) == ["01-1.safetensors", "03-3.safetensors", "index.json"]
    assert (out / "01-1.safetensors").read_text() == "trained further by me"


@pytest.mark.parametrize(
    ("index", "replaced"),
    [
        ('{"models": [{"files": {"safetensors": "mine.safetensors"}}]}', False),  # of another program
        (
            '{"descant": "1", "models": [{"files": {"safetensors": "../mine.safetensors", "pt2": "notes.md"}}]}',
            True,
        ),
        ('{"descant": "1", "models": [{"files": {"safetensors": "link.safetensors", "onnx": "a.onnx"}}]}', True),
        ("[1, 2", False),
    ],
)
def test_an_index_of_others_removes_nothing(folder: Path, tmp_path: Path, index: str, replaced: bool) -> None:
    out = tmp_path / "out"
    (out / "a.onnx").mkdir(parents=True)
    theirs = [tmp_path / "mine.safetensors", out / "mine.safetensors", out / "notes.md"]
    for file in theirs:
        file.write_text("mine")
    (out / "link.safetensors").symlink_to(theirs[0])
    (out / "index.json").write_text(index)
    with nullcontext() if replaced else pytest.raises(SettingError, match=r"index\.json' .*did not write it"):
        dc.load(folder).export(out, clients=[3], programs=False, overwrite=True)
    assert all(file.read_text() == "mine" for file in (*theirs, out / "link.safetensors"))
    assert ((out / "index.json").read_text() == index) is not replaced


@pytest.mark.slow
def test_a_run_from_settings_is_exported_from_its_folder_alone(tmp_path: Path) -> None:
    asked = {"data": {"name": "synthetic", "clients": 3, "samples": 30}, "method": "fedavg", "rounds": 2}
    live = RunSettings.of(asked | {"model": "mlp"}).execute(tmp_path / "run")
    dc.load(tmp_path / "run").export(tmp_path / "out")
    inputs = RunSettings.of(asked).federated_data().test.inputs
    outputs = alone(tmp_path / "out", inputs)
    assert set(outputs) == {"0-0.pt2", "1-1.pt2", "2-2.pt2", "shared.pt2"}
    assert torch.equal(outputs["shared.pt2"], live.shared()(inputs).detach())


def test_onnx_that_is_not_installed_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    with pytest.raises(
        SettingError, match=r"onnx and onnxscript, which are not installed: pip install 'descant\[onnx"
    ):
        dc.load(folder).export(tmp_path / "out", model=Net(), onnx=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_onnx_predicts_the_same(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    run = dc.load(folder)
    run.export(tmp_path, clients=[3, 5], model=Net(), onnx=True)
    inputs = DATA.test.inputs
    for k in (3, 5):
        session = runtime.InferenceSession(tmp_path / f"0{k}-{k}.onnx")
        for n in (1, len(inputs)):
            [found] = session.run(None, {"inputs": inputs[:n].numpy()})
            expected = run.personal(k, model=Net())(inputs[:n]).detach()
            torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-6)
