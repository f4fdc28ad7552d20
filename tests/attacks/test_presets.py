"""The papers' attacks by name: what they stand for, and that a name is the same as the list that it stands for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from descant import FederatedData, Task, simulate
from descant.attacks import ATTACKS, PRESETS, Attack, RandomLabels, RandomScale, Replacement, SignFlip
from descant.cli.app import app
from descant.errors import SettingError
from descant.experiment.declaration import Settings
from descant.methods import Ditto, FedAvg, LpProj


def attacks_of(value: Any) -> tuple[Attack, ...]:
    return Settings.of({"rounds": 1, "attacks": value}).attacks


def strengths(name: str) -> list[float]:
    return [attack.tau for attack in PRESETS[name].attacks if hasattr(attack, "tau")]


def test_strengths_are_the_papers() -> None:
    """lp-proj's and FLAME's code by their standard deviations; FLAME's text prints a variance."""
    assert [strengths(f"lp-proj/{kind}") for kind in ("same-value", "sign-flip", "gaussian", "poison")] == [
        [100.0],
        [10.0],
        [100.0],
        [20.0],
    ]
    for kind, coded in (("same-value", 0.01), ("sign-flip", 1.0), ("gaussian", 1.0)):
        assert strengths(f"flame/{kind}")[0] ** 2 == pytest.approx(0.1, rel=1e-15)
        assert strengths(f"flame-code/{kind}") == [coded]
    turned = {
        name: attack.of for name in PRESETS for attack in PRESETS[name].attacks if isinstance(attack, SignFlip)
    }
    assert turned == {"lp-proj/sign-flip": "own", "flame/sign-flip": "own", "flame-code/sign-flip": "received"}
    for name in PRESETS:
        points = [attack.on for attack in PRESETS[name].attacks if hasattr(attack, "on")]
        assert points == (["update"] if name[:8] in ("ditto/A2", "ditto/A3") else ["position"] * len(points)), name


def test_dittos_second_and_third_level_poison_labels_too() -> None:
    assert [[type(attack).name for attack in PRESETS[f"ditto/A{level}"].attacks] for level in (1, 2, 3)] == [
        ["random-labels"],
        ["random-labels", "random-update"],
        ["random-labels", "replacement"],
    ]
    [_, replaced] = PRESETS["ditto/A3"].attacks
    assert isinstance(replaced, Replacement) and replaced.factor is None, "the size of the cohort"


@pytest.mark.parametrize("name", PRESETS)
def test_a_name_is_what_it_stands_for(name: str) -> None:
    assert attacks_of(name) == attacks_of([name]) == attacks_of({"name": name}) == PRESETS[name].attacks
    settings = Settings.of({"rounds": 1, "attacks": name})
    assert Settings.of(settings.plain() | {"rounds": 1}) == settings, "as it is recorded, and resumed"
    assert settings.identity() == Settings.of({"rounds": 1, "attacks": PRESETS[name].attacks}).identity()
    assert all(0 <= share <= 1 for share in PRESETS[name].malicious) and name not in ATTACKS


def test_presets_stand_among_other_attacks() -> None:
    assert attacks_of(["lp-proj/poison", SignFlip(tau=2.0), "random-labels"]) == (
        RandomLabels(),
        RandomScale(tau=20.0, on="position"),
        SignFlip(tau=2.0),
        RandomLabels(),
    )


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(SettingError, match=r"Did you mean 'lp-proj/sign-flip'\?"):
        attacks_of("lp-proj/sign-flp")
    with pytest.raises(SettingError, match=r"attacks\[1\]\.tau: a preset has no fields.*labels, random-scale"):
        attacks_of(["alie", {"name": "lp-proj/poison", "tau": 3}])


@pytest.mark.few(3)
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(
    "method",
    [FedAvg(steps=2), Ditto(steps=2, solver=FedAvg(steps=2)), LpProj(steps=2, dim=3)],
    ids=lambda method: method.name,
)
def test_every_preset_runs(labelled: FederatedData, linear: Task, method: Any, name: str) -> None:
    how: dict[str, Any] = {"rounds": 2, "evaluate": 2, "mode": "vmap", "malicious": 0.4}
    done = simulate(linear, labelled, method, attacks=name, **how)
    parts = simulate(linear, labelled, method, attacks=PRESETS[name].attacks, **how)
    assert done.clients.equals(parts.clients) and done.config["attacks"] == parts.config["attacks"]


def test_they_are_listed() -> None:
    told = CliRunner().invoke(app, ["list", "attacks", "--json"])
    found = {entry["name"]: entry for entry in json.loads(told.stdout)}
    assert set(found) == {*ATTACKS, *PRESETS}
    poison = found["lp-proj/poison"]
    assert poison["parts"] == [{"name": "random-labels"}, {"name": "random-scale", "on": "position"}]
    assert poison["malicious"] == [0.02, 0.05, 0.1, 0.2]
    table = CliRunner().invoke(app, ["list", "attacks"], env={"COLUMNS": "200"})
    assert "presets of attacks" in table.stdout and "lp-proj/sign-flip" in table.stdout
