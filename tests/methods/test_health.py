"""Federation health: who jumps, and that nobody trains otherwise where it is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from descant import FederatedData, Task
from descant.aggregators import CoordinateMedian
from descant.attacks import SignFlip
from descant.errors import SettingError
from descant.methods import APFL, METHODS, MOCHA, Ditto, FedAvg, FedPer, FedPlus, FineTune, Local, Method, PFedMe
from tests.methods.runs import far, run, shared


def two_layers(data: FederatedData) -> Task:
    torch.manual_seed(4)
    return Task(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double())


STAY = {"local", "ditto", "pfedme", "rsa", "lp-proj", "fed+", "fedavg+", "fedgeomed+", "fedcomed+", "flame"}
STAY |= {"lp-proj-admm", "mr-mtl", "fedamp", "fedadmm", "hush", "one-projection", "pfed1bs", "pfedlms"}
PART_OF_THE_WAY = {"apfl", "mapper", "fedala", "l2sgd"}  # they mix the aggregate with something of their own


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mocha"}))
def test_who_goes_on_from_its_own_model_does_not_jump_and_who_takes_the_shared_one_goes_all_the_way(
    data: FederatedData, name: str
) -> None:
    done = run(two_layers(data), data, METHODS[name](steps=2), rounds=3, health=[3])  # type: ignore[call-arg]
    jump, distance = done.health["jump"].to_numpy(), done.health["distance"].to_numpy()
    assert len(jump) == len(data) and np.isfinite(done.health.to_numpy()).all()
    if name in STAY:
        assert (jump == 0).all() and (METHODS[name].has_shared == (distance > 0).any())
    elif name not in PART_OF_THE_WAY:
        np.testing.assert_array_equal(jump, distance)
        assert (jump > 0).all()
    assert (jump <= distance + 1e-12).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mocha"}))
def test_nothing_of_a_run_changes_where_its_health_is_looked_at(data: FederatedData, name: str) -> None:
    method = METHODS[name](steps=2, batch=3)  # type: ignore[call-arg]
    how: dict[str, Any] = {"rounds": 3, "cohort": 4, "evaluate": 1, "stragglers": 0.3}
    plain, looked_at = (run(two_layers(data), data, method, health=health, **how) for health in (None, 1))
    assert plain.health.is_empty() and len(looked_at.health) == 12
    assert plain.clients.equals(looked_at.clients)
    assert plain.rounds.drop("seconds").equals(looked_at.rounds.drop("seconds"))


def test_mocha_goes_up_its_dual_and_is_told_where_the_others_took_it(data: FederatedData) -> None:
    """Its models are one for every client, so that the aggregate is what its next work starts from."""
    task = Task(nn.Linear(4, 3).double())
    how: dict[str, Any] = {"rounds": 3, "evaluate": 1}
    plain, seen = (run(task, data, MOCHA(lam=0.1, every=1), health=health, **how) for health in (None, 1))
    assert plain.clients.equals(seen.clients)
    for t in (1, 2, 3):
        rows = seen.health.filter(pl.col("round") == t)
        before = seen.clients.filter(pl.col("round") == t - 1)["train_loss"].to_numpy()
        after = seen.clients.filter(pl.col("round") == t)["train_loss"].to_numpy()
        np.testing.assert_allclose(rows["loss_began"], before, rtol=1e-12)
        np.testing.assert_allclose(rows["loss_at_1"], after, rtol=1e-12)
        np.testing.assert_array_equal(rows["jump"], rows["distance"])
        assert (rows["jump"] > 0).all() and (abs(rows["loss_at_0"] - rows["loss_began"]) > 0).any()


def test_the_line_ends_at_the_shared_model_that_the_run_hands_out(plane: Task, regression: FederatedData) -> None:
    done = run(plane, regression, FedAvg(steps=2), rounds=3, health=[3], evaluate=3)
    evaluated = done.clients.filter(pl.col("round") == 3)["train_loss"].to_numpy()
    np.testing.assert_array_equal(done.health["loss_at_1"].to_numpy(), evaluated)
    assert far(shared(done), shared(run(plane, regression, FedAvg(steps=2), rounds=3))) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("method", "jumps"),
    [
        (PFedMe(steps=2, reset=True), True),
        (METHODS["fedadmm"](steps=2, reset=True), True),  # type: ignore[call-arg]
        (FineTune(steps=2, solver=FedAvg(steps=2)), True),
        (FineTune(steps=2, after=2, solver=FedAvg(steps=2)), False),
        (FineTune(steps=0, after=2, solver=FedAvg(steps=2)), False),
        (Ditto(steps=2, after=2, solver=FedAvg(steps=2)), False),
        (Ditto(steps=2, lam=(0.1, 1.0)), False),
        (APFL(steps=2, alpha=1.0, adaptive=False), False),  # local training
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_settings_that_change_where_work_starts_change_who_jumps(
    data: FederatedData, method: Method, jumps: bool
) -> None:
    done = run(two_layers(data), data, method, rounds=4, health=[4])
    assert (done.health["jump"] > 0).all() == (done.health["jump"] > 0).any() == jumps


def test_apfl_without_mixing_is_fedavg_in_its_health_too(data: FederatedData) -> None:
    task = two_layers(data)
    mixed = run(task, data, APFL(steps=2, alpha=0.0, adaptive=False), rounds=3, health=1)
    plain = run(task, data, FedAvg(steps=2, weighted=False), rounds=3, health=1)
    np.testing.assert_allclose(mixed.health.to_numpy(), plain.health.to_numpy(), rtol=1e-12, atol=1e-14)


def test_layers_that_stay_with_the_client_do_not_jump(data: FederatedData) -> None:
    """Between the local model and the aggregate only the shared layers move, so that the jump is theirs."""
    task = two_layers(data)
    shared_all = run(task, data, FedPer(steps=2, layers=()), rounds=1, health=[1])
    as_fedavg = run(task, data, FedAvg(steps=2), rounds=1, health=[1])
    np.testing.assert_allclose(shared_all.health["jump"], as_fedavg.health["jump"], rtol=1e-12)
    kept = run(task, data, FedPer(steps=2, layers=("0", "2")), rounds=1, health=[1])
    assert (kept.health["jump"] == 0).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_running_statistics_go_along_the_line(data: FederatedData, buffers: Any) -> None:
    """At its ends a model predicts with its own statistics: at 1 as the shared model does, at 0 as one alone."""
    several = data.only([k for k in range(len(data)) if int(data.train.sizes[k]) > 1])
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
    task = Task(module, buffers=buffers)
    how: dict[str, Any] = {"rounds": 1, "health": [1], "evaluate": 1}
    done = run(task, several, FedAvg(steps=2, batch=None), **how)
    alone = run(task, several, Local(steps=2, batch=None), **how)
    last = [run.clients.filter(pl.col("round") == 1)["train_loss"].to_numpy() for run in (done, alone)]
    np.testing.assert_allclose(done.health["loss_at_1"], last[0], rtol=1e-12)
    np.testing.assert_allclose(done.health["loss_at_0"], last[1], rtol=1e-12)
    assert abs(last[0] - last[1]).max() > 1e-3


def test_attackers_have_rows_and_are_nobodys_figure(data: FederatedData) -> None:
    records: list[Any] = []
    done = run(
        two_layers(data), data, FedAvg(steps=2), rounds=2, health=[2], attacks=SignFlip(), malicious=[1, 4],
        aggregator=CoordinateMedian(), progress=records.append,
    )  # fmt: skip
    assert len(done.health) == len(data)
    (record,) = [r for r in records if type(r).__name__ == "HealthRecord"]
    assert record.clients[~record.counted].tolist() == [1, 4]


def test_fed_plus_with_lam_1_is_the_jump_of_one_model(plane: Task, regression: FederatedData) -> None:
    done = run(plane, regression, FedPlus(steps=2, lam=1.0), rounds=2, health=1)
    np.testing.assert_array_equal(done.health["jump"].to_numpy(), done.health["distance"].to_numpy())


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (0, "health = 0: it must be a whole number of rounds"),
        ([], "a list of different rounds"),
        ([2, 2], "a list of different rounds"),
        ([9], "the round 9 is beyond the run's 3 rounds"),
        (7, "every 7 rounds are beyond the run's 3 rounds"),
        ({"points": [0.5, 0.2]}, "numbers from 0 to 1 that rise"),
        ({"points": [0.0, 1.5]}, "numbers from 0 to 1 that rise"),
        ({"part": "tests"}, "one of"),
        ({"rounds": 1, "part": "valid"}, "no client of data .* has such examples"),
        ({"every": 3}, "every"),
        ("often", "health"),
    ],
)
def test_bad_health_is_refused_by_name(data: FederatedData, health: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        run(two_layers(data), data, FedAvg(), rounds=3, health=health)


def test_a_method_that_gives_no_whole_models_is_told(data: FederatedData) -> None:
    class Odd(FedAvg):
        def resumes(self, down: Any, state: Any, local: Any) -> Any:
            return down["w"][:, :2]

    with pytest.raises(ValueError, match=r"Odd.resumes gave .* it must give whole models"):
        run(two_layers(data), data, Odd(steps=1), rounds=1, health=1)
