"""Settings files: what is accepted, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from descant.errors import SettingError
from descant.experiment.settings import RunSettings, read_settings
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
        ({"method": {"name": "ditto", "lam": -1}}, "Ditto.lam = -1"),
        ({"method": {"name": "ditto", "lam": "big"}}, "ditto.lam = 'big'"),
        ({"method": {"name": "ditto", "solver": {"name": "fedavgg"}}}, "Did you mean 'fedavg'"),
        ({"method": {"name": "ditto", "solver": "local"}}, "a method that trains a shared model"),
        ({"method": {"lam": 1}}, "needs a name"),
        ({"method": {"name": "no.such.module:Method"}}, "cannot be imported"),
        ({"method": {"name": "fedavg", "steps": 2, "epochs": 1}}, "both steps and epochs"),
        ({"loss": "entropy"}, "no loss called 'entropy'"),
        ({"aggregator": "average"}, "no aggregator called 'average'"),
        ({"trainers": "all"}, "trainers = 'all'"),
        ({"evaluate": {"every": 0}}, "evaluate.every = 0"),
        ({"data": None}, "data = None"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        RunSettings.of(GOOD | changes)
    assert message in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SettingError, match="'rounds' is missing"):
        RunSettings.of({"data": "digits", "method": "local"})


def test_a_data_set_is_told_what_it_does_not_know() -> None:
    settings = RunSettings.of(GOOD | {"data": {"name": "digits", "client": 5}})
    with pytest.raises(SettingError, match=r"dataset 'digits' called 'client'\. Did you mean 'clients'"):
        settings.federated_data()


def test_overrides_reach_into_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: digits\nmethod: {name: lp-proj, lam: 1.0}\nrounds: 3\n")
    values = read_settings(file, ["method.lam=0.25", "rounds=7", "data.clients=5", "cohort=null"])
    settings = RunSettings.of(values)
    assert settings.method == {"name": "lp-proj", "lam": 0.25} and settings.rounds == 7
    assert settings.data == {"name": "digits", "clients": 5} and settings.cohort is None


@pytest.mark.parametrize("override", ["rounds", "=3", "rounds.more=3"])
def test_a_bad_override_is_refused(tmp_path: Path, override: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("rounds: 3\n")
    with pytest.raises(SettingError, match="--set"):
        read_settings(file, [override])


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", ""])
def test_a_file_that_holds_no_settings_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=r"bad\.yaml"):
        read_settings(file)
    with pytest.raises(SettingError, match="cannot be read"):
        read_settings(tmp_path / "none.yaml")


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
