"""The names of data in tables: no two of them are the same, whatever their settings are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from descant import Comparison, FederatedData, simulate
from descant.experiment import Run
from descant.experiment.harm import worse_than_alone
from descant.experiment.ondata import data_names

DATA = FederatedData.from_arrays([(torch.eye(3).repeat(4, 1), torch.arange(12) % 2) for _ in range(3)])


@pytest.fixture(scope="module")
def one() -> Run:
    return simulate(nn.Linear(3, 2), DATA, "local", rounds=1, mode="vmap", label="one")


def on(run: Run, **settings: Any) -> Run:
    """The run as if its data had these settings."""
    config = copy.deepcopy(run.config)
    config["data"]["settings"] = settings
    return Run(config, run.history)


LONG = list(range(100))


@pytest.mark.parametrize(
    "settings",
    [
        [{"a": 0, "b": 0, "c": 6, "d": 30}, {"a": 1, "b": 1, "c": 7, "d": 40}, {"a": 1, "b": 1, "c": 7, "d": 50}],
        [{"alpha": 1}, {"alpha": 1.0}],
        [{"flip": True}, {"flip": 1}],
        [{"alpha": None}, {}],
        [{"alpha": "1"}, {"alpha": 1}],
        [{"sizes": [*LONG, 1]}, {"sizes": [*LONG, 2]}, {"sizes": [*LONG, 3]}],
    ],
)
def test_runs_on_data_of_other_settings_all_stand_in_a_comparison(one: Run, settings: list[Any]) -> None:
    runs = [on(one, **some) for some in settings]
    names = list(data_names(runs).values())
    assert len(set(names)) == len(runs)
    assert [seeds for seeds in Comparison(runs).runs.values()] == [[run] for run in runs]


def test_as_many_settings_are_told_as_tell_data_apart(one: Run) -> None:
    told = [{"a": 0, "b": 0, "c": 6, "d": 30}, {"a": 1, "b": 1, "c": 7, "d": 40}, {"a": 1, "b": 1, "c": 7, "d": 50}]
    names = list(data_names([on(one, **some) for some in told]).values())
    assert names == ["arrays (a 0, b 0, c 6)", "arrays (a 1, b 1, c 7, d 40)", "arrays (a 1, b 1, c 7, d 50)"]


def test_what_was_noted_of_data_hides_nobody_who_is_worse_than_alone(one: Run) -> None:
    other = simulate(nn.Linear(3, 2), DATA, "fedavg", rounds=1, mode="vmap")
    plain = worse_than_alone({"one": [one], "fedavg": [other]}, "last")
    other.config["data"]["notes"] = ["a client was left out"]
    noted = worse_than_alone({"one": [one], "fedavg": [other]}, "last")
    assert plain == noted and list(plain) == ["fedavg"]
