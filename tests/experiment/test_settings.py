"""Settings files: what is accepted, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descant.data import DataError
from descant.errors import SettingError
from descant.experiment.settings import RunSettings
from descant.methods import LpProj

GOOD: dict[str, Any] = {"data": "digits", "method": "local", "rounds": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": "many"}, "rounds = 'many'"),
        ({"round": 3}, "no setting called 'round'. Did you mean 'rounds'"),
        ({"method": "dito"}, "no method called 'dito'. Did you mean 'ditto'"),
        (
            {"method": {"name": "ditto", "lambda": 1}},
            "no setting of method 'ditto' called 'lambda'. Did you mean 'lam'",
        ),
        ({"method": {"name": "ditto", "lam": -1}}, "method.lam = -1.0: it must be zero or more"),
        ({"method": {"name": "ditto", "lam": "big"}}, "method.lam = 'big'"),
        ({"method": {"name": "ditto", "lam": True}}, "method.lam = True"),
        ({"method": {"name": "ditto", "steps": "5"}}, "method.steps = '5'"),
        ({"method": {"name": "ditto", "solver": {"name": "fedavgg"}}}, "method.solver: there is no method called"),
        ({"method": {"name": "ditto", "solver": {"name": "fedavg", "lr": 0}}}, "method.solver.lr = 0.0"),
        ({"method": {"name": "ditto", "solver": "local"}}, "a method that trains a shared model"),
        ({"method": {"lam": 1}}, "needs a name"),
        ({"method": {"name": "no.such.module:Method"}}, "cannot be imported"),
        ({"method": {"name": "fedavg", "steps": 2, "epochs": 1}}, "both steps and epochs"),
        ({"loss": "entropy"}, "no loss called 'entropy'"),
        ({"loss": "mine:loss"}, "handed over in Python: descant.Task(model, loss=..., metric=...)"),
        ({"metric": "mine:score"}, "handed over in Python: descant.Task"),
        ({"metric": "f2"}, "metric: there is no metric called 'f2'. Did you mean 'f1'"),
        (
            {"metric": 3},
            "metric = 3: it must be one of accuracy, f1, binary-f1, balanced-accuracy, auc, or nothing",
        ),
        ({"data": {"name": "digits", "least": 0}}, "data.least = 0: it must be a whole number, 1 or more"),
        (
            {"data": {"name": "digits", "tiny": "merge"}},
            "data.tiny = 'merge': it must be 'refuse', 'drop' or 'pool'",
        ),
        ({"data": {"name": "digitts", "least": 2}}, "no dataset called 'digitts'. Did you mean 'digits'"),
        ({"aggregator": "average"}, "no aggregator called 'average'"),
        ({"trainers": "all"}, "trainers = 'all'"),
        ({"evaluate": {"every": 0}}, "evaluate.every = 0"),
        ({"data": None}, "data = None"),
        ({"data": {"name": "digits", "client": 5}}, "data.client: there is no setting of dataset 'digits' called"),
        ({"data": {"name": "digits", "clients": "few"}}, "data.clients = 'few'"),
        (
            {"data": {"name": "digits", "partition": {"name": "iid"}}},
            "data.partition: partition 'iid' needs a value",
        ),
        (
            {"model": {"name": "mlp", "hiden": [5]}},
            "model.hiden: there is no setting of model 'mlp' called 'hiden'",
        ),
        ({"model": {"name": "mlp", "hidden": 10}}, "model.hidden = 10: it must be a list, as in [10]"),
        ({"method": {"name": "hush", "bits": [2, 0]}}, "method.bits = [2, 0]: it must be from 1 to 16"),
        ({"method": {"name": "ditto", "solver": "ditto"}}, "method.solver = 'ditto': it must be a method that"),
        ({"downlink": None}, "; for none write native"),
        ({"aggregator": None}, "; for none write mean"),
        ({"rounds": True}, "rounds = True: it must be a whole number, 1 or more"),
        ({"out": "runs/here"}, "with --out"),
        ({"store": "disk", "commit": 5}, "commit = 5: it must be 1 (or nothing) with store='disk'"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        RunSettings.of(GOOD | changes)
    assert message in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SettingError, match="'rounds' is missing"):
        RunSettings.of({"data": "digits", "method": "local"})


@pytest.mark.parametrize(
    ("field", "path", "message"),
    [
        (
            "method",
            "os:getcwd",
            "method: 'os:getcwd' is no method: it must be a class derived from descant.methods.",
        ),
        ("method", "collections:OrderedDict", "'collections:OrderedDict' is no method"),
        ("method", "descant.aggregators:Mean", "'descant.aggregators:Mean' is no method"),
        ("method", "descant.methods:Method", "'descant.methods:Method' is no complete method: it has no client"),
        ("aggregator", "descant.methods:FedAvg", "'descant.methods:FedAvg' is no aggregator"),
        ("data", "os:sep", "data: 'os:sep' is no dataset: it must be a function that makes one"),
    ],
)
def test_an_import_path_of_the_wrong_kind_is_refused_by_name(field: str, path: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        RunSettings.of(GOOD | {field: path})
    assert message in str(caught.value)


def test_a_function_that_makes_no_data_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="data: 'os:getcwd' is no dataset: it made a str, and no FederatedData"):
        RunSettings.of(GOOD | {"data": "os:getcwd"}).federated_data()


def test_a_run_from_settings_keeps_them() -> None:
    settings = RunSettings.of(
        {
            "data": {"name": "synthetic", "clients": 4, "samples": 20},
            "method": {"name": "lp-proj", "p": 2},
            "rounds": 1,
        }
    )
    run = settings.execute()
    assert RunSettings.of(run.config["settings"]) == settings
    assert run.config["method"]["p"] == 2 and run.config["method"]["eta"] == LpProj().eta
    assert (
        settings.execute().summary()["personal.test_loss.mean@last"]
        == run.summary()["personal.test_loss.mean@last"]
    )


def test_a_method_of_ones_own_is_named_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_lab.py").write_text(
        "from dataclasses import dataclass\n"
        "from descant.methods import Local\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Lazy(Local):\n"
        "    '''Local training that hardly moves.'''\n"
        "    name = 'lazy'\n"
        "    haste: float = 1e-3\n"
        "    def step(self, v, grad):\n"
        "        return v - self.haste * grad(v)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    method = {"name": "my_lab:Lazy", "haste": 0.5, "steps": 2}
    data = {"name": "synthetic", "clients": 3, "samples": 20}
    run = RunSettings.of({"data": data, "method": method, "rounds": 2}).execute()
    assert run.config["method"]["name"] == "my_lab:Lazy" and run.config["method"]["haste"] == 0.5
    with pytest.raises(SettingError, match="Did you mean 'haste'"):
        RunSettings.of({"data": data, "method": {"name": "my_lab:Lazy", "hast": 1}, "rounds": 2})


def test_a_number_says_how_often_to_evaluate() -> None:
    assert RunSettings.of(GOOD | {"evaluate": 5}) == RunSettings.of(GOOD | {"evaluate": {"every": 5}})


SPREAD = {"name": "digits", "partition": {"name": "power-law", "clients": 6, "labels": 2}, "seed": 1}


def test_tiny_clients_of_data_of_any_kind_are_treated_as_the_file_says() -> None:
    whole = RunSettings.of(GOOD | {"data": SPREAD}).federated_data()
    sizes = whole.train.sizes + whole.valid.sizes + whole.test.sizes
    least = int(sizes.sort().values[2])  # the two smallest have fewer
    assert sizes.unique().numel() > 3
    for tiny in ("drop", "pool"):
        data = RunSettings.of(GOOD | {"data": SPREAD | {"least": least, "tiny": tiny}}).federated_data()
        assert data.fingerprint == whole.without_tiny(least, tiny).fingerprint != whole.fingerprint
        assert len(data) == (4 if tiny == "drop" else 5) and data.notes
    with pytest.raises(DataError, match=f"2 clients, .* have fewer than least={least} examples"):
        RunSettings.of(GOOD | {"data": SPREAD | {"least": least}}).federated_data()


def test_a_folder_looks_for_tiny_clients_before_it_splits(tmp_path: Path) -> None:
    for name, n in (("a", 10), ("b", 1)):
        np.savez(tmp_path / f"{name}.npz", inputs=np.eye(10, dtype=np.float32)[:n], targets=np.arange(n) % 2)
    spec = {"name": "folder", "folder": str(tmp_path), "least": 2, "tiny": "drop"}
    data = RunSettings.of(GOOD | {"data": spec}).federated_data()
    assert data.clients == ("a",) and "'b' (1)" in data.notes[0]


def test_what_means_the_same_is_the_same_cell() -> None:
    plain = RunSettings.of(GOOD | {"data": SPREAD}).identity()
    assert (
        RunSettings.of(GOOD | {"data": SPREAD | {"least": 1, "tiny": "refuse"}, "metric": None}).identity() == plain
    )
    for changed in ({"data": SPREAD | {"least": 2}}, {"data": SPREAD, "metric": "f1"}):
        assert RunSettings.of(GOOD | changed).identity() != plain
    run = GOOD | {"data": SPREAD | {"seed": "run", "least": 2}}
    assert RunSettings.of(run).identity()["data"]["seed"] == "run"


@pytest.mark.few(1)
@pytest.mark.parametrize("model", ["linear", {"name": "mlp", "hidden": [4]}, "svm"])
def test_a_model_for_bce_gives_one_logit(tmp_path: Path, model: Any) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        x = rng.normal(size=(40, 3)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", inputs=x, targets=(x[:, 0] > 0).astype(np.int64))
    spec = {"data": {"name": "folder", "folder": str(tmp_path)}, "model": model, "loss": "bce", "metric": "auc"}
    run = RunSettings.of({**spec, "method": {"name": "local", "lr": 0.5, "steps": 50}, "rounds": 2}).execute()
    assert run.config["task"]["loss"] == "bce" and run.config["settings"]["metric"] == "auc"
    assert run.summary()["personal.test_auc.mean@last"] > 0.9
    assert run.confusion().shape == (2, 2, 2)
