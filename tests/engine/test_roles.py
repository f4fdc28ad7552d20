"""The role that a method trains in names a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import descant as dc
from descant.errors import SettingError
from descant.methods import FedAvg

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)


def run_in(role: str, trains: tuple[str, ...] = ("shared",), module: torch.nn.Module | None = None) -> None:
    def client(self: Any, down: Any, state: Any, local: Any) -> Any:
        local.run(self.step, down["w"], down["w"], work=self.work, role=role)
        return FedAvg.client(self, down, state, local)

    method = type("Mine", (FedAvg,), {"client": client, "trains": trains})()
    dc.simulate(dc.Task(module or torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap")


@pytest.mark.parametrize("role", ["perzonal", "perzonal/1"])
def test_a_role_that_names_no_model_is_refused(role: str) -> None:
    said = (
        rf"local.run\(role='{role}'\): there is no model of `trains` called 'perzonal'. Did you mean 'personal'\?"
    )
    with pytest.raises(SettingError, match=said):
        run_in(role)


def test_running_statistics_of_a_model_that_is_not_named_would_be_lost() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    run_in("personal", trains=("shared", "personal"), module=module)
    said = r"local.run\(role='personal'\): there is no model of `trains` called 'personal'. Known: shared"
    with pytest.raises(SettingError, match=said):
        run_in("personal", module=module)


@pytest.mark.parametrize("model", ["personnal", "Personal", "shard"])
def test_a_misspelt_model_of_trains_is_told_which_one_it_may_be(model: str) -> None:
    near, other = ("shared", "personal") if model == "shard" else ("personal", "shared")
    with pytest.raises(SettingError, match=rf"has trains = .*: is '{model}' meant to be '{near}'\?"):
        run_in("shared", trains=(other, model))


def test_several_models_of_a_kind_may_be_numbered() -> None:
    run_in("personal_1", trains=("shared", "personal_1", "personal_2"))
    run_in("shared", trains=("shared", "shared_2"))


def test_models_that_a_method_names_and_those_of_every_method_are_trained() -> None:
    run_in("personal/1")
    run_in("teacher/1", trains=("shared", "teacher"))
