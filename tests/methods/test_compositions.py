"""Methods that are special cases of each other agree exactly: minibatches, cohorts and stragglers included.

Draws are addressed by role and not by method, so that two methods that do the same work see the same examples.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from descant import FederatedData, Task
from descant.coupling import Identity
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, FedProx, Local, LpProj, Method, PFedMe
from tests import held
from tests.held import personal, shared
from tests.methods.runs import MINI as WORK
from tests.methods.runs import four as run
from tests.methods.runs import moved, same

PARTICIPATION = pytest.mark.parametrize("trainers", ["cohort", "everyone"])
STRAGGLERS = pytest.mark.parametrize("stragglers", [0.0, 0.6])


@pytest.mark.few(1)
@PARTICIPATION
@STRAGGLERS
@pytest.mark.parametrize(
    "solver",
    [
        FedAvg(**WORK),
        FedAvg(lr=0.1, epochs=2, batch=3, weighted=False, stragglers="keep"),
        FedProx(lr=0.1, epochs=3, batch=4, mu=0.5),
    ],
    ids=["fedavg", "fedavg-plain", "fedprox"],
)
def test_the_shared_model_of_ditto_is_its_solvers(
    data: FederatedData, mlp: Task, solver: Method, trainers: str, stragglers: float
) -> None:
    over = Ditto(lr=0.2, steps=4, batch=2, lam=0.7, solver=solver)
    settings = {"trainers": trainers, "stragglers": stragglers}
    alone = shared(run(mlp, data, solver, **settings))
    same(shared(run(mlp, data, over, **settings)), alone)
    moved(mlp, alone)


@pytest.mark.few(1)
@PARTICIPATION
@STRAGGLERS
@pytest.mark.parametrize("work", [WORK, {"lr": 0.1, "epochs": 2, "batch": 4, "clip": 0.3, "weight_decay": 0.1}])
def test_ditto_with_lambda_0_is_local_training(
    data: FederatedData, mlp: Task, work: dict[str, Any], trainers: str, stragglers: float
) -> None:
    settings = {"trainers": trainers, "stragglers": stragglers}
    ditto = personal(run(mlp, data, Ditto(lam=0.0, solver=FedAvg(lr=0.3, batch=2), **work), **settings))
    local = personal(run(mlp, data, Local(**work), **settings))
    same(ditto, local)
    moved(mlp, local)


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("fate", ["drop", "keep"])
def test_fedprox_with_mu_0_is_fedavg(data: FederatedData, mlp: Task, fate: Any, stragglers: float) -> None:
    prox = shared(run(mlp, data, FedProx(mu=0.0, stragglers=fate, **WORK), stragglers=stragglers))
    avg = shared(run(mlp, data, FedAvg(stragglers=fate, **WORK), stragglers=stragglers))
    same(prox, avg)
    moved(mlp, avg)


@pytest.mark.few(1)
@PARTICIPATION
@STRAGGLERS
@pytest.mark.parametrize(
    "method",
    [LpProj(dim=0, **WORK), LpProj(dim=5, p=2.0, lam=0.0, **WORK), PFedMe(lam=0.0, **WORK)],
    ids=["lp-proj in no dimensions", "lp-proj with lambda 0", "pfedme with lambda 0"],
)
def test_a_bilevel_method_without_its_penalty_is_local_training(
    data: FederatedData, mlp: Task, method: Method, trainers: str, stragglers: float
) -> None:
    settings = {"trainers": trainers, "stragglers": stragglers}
    local = personal(run(mlp, data, Local(**WORK), **settings))
    same(personal(run(mlp, data, method, **settings)), local)
    moved(mlp, local)


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("work", [WORK, {"lr": 0.1, "nu": 1e-2, "cap": 12, "batch": 3}], ids=["steps", "nu"])
def test_lp_proj_in_the_whole_space_with_p_2_is_pfedme(
    data: FederatedData, at_zero: Task, work: dict[str, Any], stragglers: float
) -> None:
    bilevel = work | {"lam": 1.5, "eta": 0.3, "R": 3, "beta": 0.8}
    proj = run(at_zero, data, LpProj(p=2.0, projection=Identity(), **bilevel), stragglers=stragglers)
    pfedme = run(at_zero, data, PFedMe(**bilevel), stragglers=stragglers)
    same(personal(proj), personal(pfedme))
    same(held.by_server(proj)["w"], shared(pfedme))
    moved(at_zero, personal(pfedme))


def test_each_alternation_of_a_bilevel_method_sees_minibatches_of_its_own(data: FederatedData, mlp: Task) -> None:
    """Line 7 of lp-proj samples a fresh minibatch: two alternations are not the first one twice."""
    one_long = LpProj(dim=0, lr=0.1, steps=1, batch=3, R=2)
    same_client = {"rounds": 1, "cohort": None}
    both = personal(run(mlp, data, one_long, **same_client))
    same_batch = LpProj(dim=0, lr=0.1, nu=1e-30, cap=2, batch=3)
    repeated = personal(run(mlp, data, same_batch, **same_client))
    differs = (both - repeated).abs().amax(1) > 1e-6
    assert differs.tolist() == [n > 3 for n in data.train.sizes.tolist()]  # a minibatch of all examples is the same


@pytest.mark.parametrize("rounds", [1, 4])
def test_fedavg_of_one_client_is_local_training(mlp: Task, data: FederatedData, rounds: int) -> None:
    X, y = data.train.client(4)
    alone = FederatedData.from_arrays([{"train": (X, y)}], classes=data.classes)
    settings: dict[str, Any] = {"rounds": rounds, "cohort": None}
    work: dict[str, Any] = {"lr": 0.3, "steps": 4, "batch": None}
    avg = run(mlp, alone, FedAvg(**work), **settings)
    same(shared(avg)[None], personal(run(mlp, alone, Local(**work), **settings)))
    same(shared(avg)[None], personal(avg))


@pytest.mark.parametrize("solver", [Local(), LpProj(), PFedMe(), Ditto()], ids=lambda solver: solver.name)
def test_ditto_needs_a_solver_with_a_shared_model(solver: Method) -> None:
    with pytest.raises(SettingError, match=r"Ditto\.solver = .* a method that trains a shared model"):
        Ditto(solver=solver)


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_the_penalty_of_ditto_pulls_towards_the_shared_model(data: FederatedData, mlp: Task, lam: float) -> None:
    """Clipped to nothing, the loss leaves line 6 to its penalty: v - w shrinks by 1 - lr lam a step."""
    work: dict[str, Any] = {"steps": 3, "batch": None, "clip": 1e-13}
    ditto = Ditto(lr=0.1, lam=lam, solver=FedAvg(lr=0.1, **work), **work)
    done = run(mlp, data, ditto, rounds=1, cohort=None, own_start=True)
    starts = torch.stack(
        [held.simulation(done).clients._first_state(torch.tensor([k]))["v"][0] for k in range(len(data))]
    )
    expected = mlp.start() + (1 - 0.1 * lam) ** 3 * (starts - mlp.start())
    same(personal(done), expected)
