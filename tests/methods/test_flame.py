"""FLAME and its relatives: where one is another, what they refuse, and what a client gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from descant import FederatedData, Task, simulate
from descant.coupling import Identity
from descant.engine.cohort import sample
from descant.errors import NoSharedModelError, SettingError
from descant.methods import FLAME, Ditto, FedADMM, FedAvg, FedProx, Local, LpProj, LpProjADMM, Method, PFedMe, Work
from tests import held
from tests.held import personal, shared
from tests.methods.runs import MINI as WORK
from tests.methods.runs import four as run
from tests.methods.runs import moved, same

ALL = 7  # clients
COHORTS = pytest.mark.parametrize("cohort", [4, ALL])
STRAGGLERS = pytest.mark.parametrize("stragglers", [0.0, 0.6])


@pytest.mark.few(1)
@pytest.mark.parametrize(("cohort", "stragglers"), [(4, 0.6), (ALL, 0.0)])
@pytest.mark.parametrize(
    "settings",
    [
        WORK,
        WORK | {"weighted": True},
        WORK | {"pull": "global"},
        WORK | {"dual": False},
        {"lr": 0.1, "batch": 3, "eps": 1e-3, "upsilon": 0.6, "cap": 20},
    ],
    ids=str,
)
def test_lp_proj_2_by_admm_in_the_whole_space_is_flame(
    data: FederatedData, at_zero: Task, settings: dict[str, Any], cohort: int, stragglers: float
) -> None:
    settings = settings | {"lam": 0.8, "rho": 0.15}
    how = {"cohort": cohort, "stragglers": stragglers}
    proj = run(at_zero, data, LpProjADMM(projection=Identity(), **settings), **how)
    flame = run(at_zero, data, FLAME(**settings), **how)
    same(personal(proj), personal(flame))
    for party in (held.by_server, held.by_clients):
        one, other = party(proj), party(flame)
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    moved(at_zero, personal(flame))
    moved(at_zero, shared(flame))


@pytest.mark.few(1)
@STRAGGLERS
@COHORTS
@pytest.mark.parametrize(
    "method",
    [FLAME(lam=0.0, **WORK), LpProjADMM(lam=0.0, dim=5, **WORK), LpProjADMM(dim=0, **WORK)],
    ids=["flame with lambda 0", "lp-proj-admm with lambda 0", "lp-proj-admm in no dimensions"],
)
def test_without_its_tie_flame_is_local_training(
    data: FederatedData, mlp: Task, method: Method, cohort: int, stragglers: float
) -> None:
    how = {"cohort": cohort, "stragglers": stragglers}
    local = personal(run(mlp, data, Local(**WORK), **how))
    same(personal(run(mlp, data, method, **how)), local)
    moved(mlp, local)


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("rho", [0.02, 0.3])
def test_flame_without_its_dual_is_pfedme(data: FederatedData, mlp: Task, rho: float, stragglers: float) -> None:
    """Section IV-E. Line 14 is then w_i = w - eta lambda (w - theta_i), the reference step of pFedMe."""
    lam, alpha = 1.5, 1 / ALL
    how = {"cohort": None, "stragglers": stragglers}
    penalty = run(mlp, data, FLAME(lam=lam, rho=rho, dual=False, pull="global", **WORK), **how)
    pfedme = run(mlp, data, PFedMe(lam=lam, eta=alpha / (lam * alpha + rho), R=1, **WORK), **how)
    same(personal(penalty), personal(pfedme))
    same(shared(penalty), shared(pfedme))
    moved(mlp, shared(pfedme))


@COHORTS
def test_where_rho_is_lambda_alpha_flame_sends_its_personal_model(
    data: FederatedData, mlp: Task, cohort: int
) -> None:
    """By Lemma 3, u_i = w_i + (lambda alpha_i / rho) (theta_i - w_i): so in the comparisons of the paper."""
    done = run(mlp, data, FLAME(lam=0.8, rho=0.8 / ALL, **WORK), cohort=cohort, rounds=1)
    heard = sample(11, 1, cohort, torch.ones(ALL))
    same(held.by_server(done)["u"][heard], personal(done)[heard])
    moved(mlp, personal(done)[heard])


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_where_rho_is_lambda_alpha_and_the_pull_is_global_flame_is_pfedme_at_the_rate_1_over_lambda(
    data: FederatedData, mlp: Task, lam: float, stragglers: float
) -> None:
    """The dual has no effect then: w is the mean of the theta_i, and the theta_i are pulled towards w."""
    how = {"cohort": None, "stragglers": stragglers}
    flame = run(mlp, data, FLAME(lam=lam, rho=lam / ALL, pull="global", **WORK), **how)
    pfedme = run(mlp, data, PFedMe(lam=lam, eta=1 / lam, R=1, **WORK), **how)
    same(personal(flame), personal(pfedme))
    same(shared(flame), shared(pfedme))
    moved(mlp, shared(flame))
    assert float(held.by_clients(flame)["pi"].abs().max()) > 1e-4


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("rho", [0.0, 0.05])
def test_fedadmm_without_its_dual_is_fedavg_and_with_a_penalty_fedprox(
    data: FederatedData, mlp: Task, rho: float, stragglers: float
) -> None:
    """Section IV-E; rho / alpha_i is the mu of FedProx."""
    how = {"cohort": None, "stragglers": stragglers}
    penalty = run(mlp, data, FedADMM(rho=rho, dual=False, reset=True, **WORK), **how)
    kept: dict[str, Any] = {"weighted": False, "stragglers": "keep"}
    plain = FedProx(mu=rho * ALL, **kept, **WORK) if rho else FedAvg(**kept, **WORK)
    same(shared(penalty), shared(run(mlp, data, plain, **how)))
    moved(mlp, shared(penalty))


@pytest.mark.few(1)
@COHORTS
def test_the_shared_model_of_ditto_over_fedadmm_is_fedadmms(data: FederatedData, mlp: Task, cohort: int) -> None:
    solver = FedADMM(rho=0.1, **WORK)
    alone = shared(run(mlp, data, solver, cohort=cohort))
    over = run(mlp, data, Ditto(lr=0.2, steps=4, batch=2, lam=0.7, solver=solver), cohort=cohort)
    same(shared(over), alone)
    moved(mlp, alone)


def test_the_inexact_rule_holds_one_minibatch(data: FederatedData, mlp: Task) -> None:
    """As the accuracy nu of lp-proj does; without their ties the two are the same."""
    never: dict[str, Any] = {"lr": 0.1, "batch": 3, "cap": 4}
    one_batch = personal(run(mlp, data, LpProj(dim=0, nu=1e-30, **never)))
    same(personal(run(mlp, data, FLAME(lam=0.0, eps=1e-30, **never))), one_batch)
    fresh = personal(run(mlp, data, Local(lr=0.1, steps=4, batch=3)))
    assert float((fresh - one_batch).abs().max()) > 1e-3


def test_only_alpha_over_rho_matters(data: FederatedData, mlp: Task) -> None:
    """With twice the clients, each there twice, alpha_i is half as large: half the rho gives the same models."""
    twice = FederatedData.from_arrays(
        [{"train": data.train.client(k % ALL)} for k in range(2 * ALL)], classes=data.classes
    )
    work: dict[str, Any] = {"lr": 0.1, "steps": 5, "batch": None, "lam": 0.8}
    once = run(mlp, data, FLAME(rho=0.2, **work), cohort=None)
    again = run(mlp, twice, FLAME(rho=0.1, **work), cohort=None)
    same(personal(again), personal(once).repeat(2, 1))
    same(shared(again), shared(once))


@pytest.mark.parametrize(
    "method", [FLAME(), LpProjADMM(), FedADMM(), Ditto(solver=FedADMM())], ids=lambda m: m.name
)
@pytest.mark.parametrize(
    ("setting", "why"),
    [({"own_start": True}, "own_start: .*common start"), ({"trainers": "everyone"}, "trainers: .*last u_i")],
    ids=str,
)
def test_client_and_server_must_agree_on_the_last_u_i(
    data: FederatedData, mlp: Task, method: Method, setting: dict[str, Any], why: str
) -> None:
    """The server holds u_i of clients that it has not heard, and those who train without sending move theirs."""
    with pytest.raises(SettingError, match=why):
        simulate(mlp, data, method, rounds=1, **setting)


def test_flame_has_a_personal_and_a_global_model(data: FederatedData, mlp: Task) -> None:
    done = simulate(mlp, data, FLAME(**WORK), rounds=2, mode="vmap")
    losses = {model: done.summary()[f"{model}.train_loss.mean@last"] for model in ("personal", "shared")}
    assert losses["personal"] < losses["shared"]
    proj = simulate(mlp, data, LpProjADMM(**WORK), rounds=2, mode="vmap")
    assert not any(name.startswith("shared") for name in proj.summary())
    with pytest.raises(NoSharedModelError, match="LpProjADMM has no shared model"):
        proj.shared()


@pytest.mark.parametrize("kind", [FLAME, LpProjADMM, FedADMM])
@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("rho", 0.0, "a positive number"),
        ("rho", float("nan"), "a positive number"),
        ("eps", 0.0, "a positive number, or nothing"),
        ("upsilon", 1.0, "between 0 and 1"),
        ("upsilon", 0.0, "between 0 and 1"),
        ("cap", 0, "a positive number"),
    ],
)
def test_a_value_out_of_range_is_refused(kind: type[Method], field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{field: value})
    assert str(caught.value) == f"{kind.__name__}.{field} = {value!r}: it must be {allowed}"


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FLAME, {"lam": -1.0}, "FLAME.lam = -1.0: it must be zero or more"),
        (FLAME, {"pull": "both"}, "FLAME.pull = 'both': it must be 'local' or 'global'"),
        (FLAME, {"rho": 0.0, "dual": False}, "FLAME.rho = 0.0: it must be a positive number"),
        (FedADMM, {"rho": -0.1, "dual": False}, "FedADMM.rho = -0.1: it must be zero or more"),
        (LpProjADMM, {"dim": -1}, "LpProjADMM.dim = -1: it must be zero or more"),
        (FLAME, {"eps": 0.1, "epochs": 2}, "FLAME.eps = 0.1: it must be nothing where steps are given"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    kind: type[Method], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**settings)
    assert str(caught.value) == message


def test_the_defaults_are_the_papers() -> None:
    flame = FLAME()
    assert (flame.lam, flame.rho, flame.lr, flame.work) == (1.0, 0.1, 0.01, Work(epochs=1, batch=100, lr=0.01))
