"""lp-proj, pFedMe and RSA beside a plain loop and closed forms: rates that depend on the round, orthogonal P."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task, simulate
from descant.coupling import Dense, Identity, Orthogonal, Projection
from descant.errors import NoTieWarning
from descant.methods import RSA, Local, LpProj, LpProjADMM, Method, PFedMe, PowerLaw, Stages
from tests.coupling.projecting import KINDS
from tests.held import personal, shared
from tests.methods.lpproj_loop import D, Oracle, matrix, reference, run
from tests.methods.runs import MINI, PARTICIPATION, SEED, Vector, far, who

STRAGGLERS = pytest.mark.parametrize("stragglers", [0.0, 0.6])


def gram_schmidt(rows: Vector) -> Vector:
    done: list[Vector] = []
    for row in rows:
        for other in done + done:  # twice is enough
            row = row - (row @ other) * other
        done.append(row / np.sqrt(row @ row))
    return np.stack(done)


def from_round_3(first: float, then: float) -> tuple[Stages, Callable[[int], float]]:
    return Stages(values=((1, first), (3, then))), lambda t: first if t < 3 else then


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_eta_may_depend_on_the_round(
    data: FederatedData, linear: Task, slope: Any, cohort: int, everyone: bool, p: float
) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "steps": 4, "lam": 0.6, "R": 2}
    oracle = Oracle(slope, linear.start().numpy(), cohort, everyone)
    P, w0 = matrix(Dense(), 6), np.zeros(6)
    for eta, at in (
        (PowerLaw(scale=0.5, shift=2.5, power=-1.0), lambda t: 0.5 / (2.5 + (t - 1))),
        from_round_3(0.3, 0.02),
    ):
        w, x = oracle.run(P, p, w0, eta=at, **settings)
        done = run(linear, data, LpProj(p=p, dim=6, eta=eta, batch=None, **settings), **who(cohort, everyone))
        assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10
        assert far(w, w0) > 1e-2


@pytest.mark.few(1)
@PARTICIPATION
def test_nu_may_depend_on_the_round(
    data: FederatedData, linear: Task, slope: Any, cohort: int, everyone: bool
) -> None:
    settings: dict[str, Any] = {"lr": 0.5, "lam": 0.6, "R": 2, "cap": 40}
    eta, at = from_round_3(0.2, 0.15)
    w, x = Oracle(slope, linear.start().numpy(), cohort, everyone).run(
        np.eye(D), 2.0, linear.start().numpy(), eta=at, nu=lambda t: 0.02 / t**1.5, **settings
    )
    method = PFedMe(nu=PowerLaw(scale=0.02, power=-1.5), eta=eta, batch=None, **settings)
    done = run(linear, data, method, **who(cohort, everyone))
    assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10
    fixed = run(linear, data, PFedMe(nu=0.02, eta=eta, batch=None, **settings), **who(cohort, everyone))
    steps = [[row["gradients"] for row in r.history.rounds] for r in (done, fixed)]
    assert steps[0][0] == steps[1][0]
    assert all(a > b for a, b in zip(steps[0][1:], steps[1][1:], strict=True)), "a smaller nu takes more steps"


@pytest.mark.few(1)
@PARTICIPATION
def test_rsa_is_the_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, cohort: int, everyone: bool
) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "steps": 4, "lam": 0.05, "R": 3}
    theta = linear.start().numpy()
    eta, at = from_round_3(0.3, 0.1)
    w, x = Oracle(slope, theta, cohort, everyone).run(np.eye(D), 1.0, theta, eta=at, **settings)
    done = run(linear, data, RSA(eta=eta, batch=None, **settings), **who(cohort, everyone))
    assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10
    assert torch.equal(shared(done), reference(done))
    assert far(w, theta) > 1e-2


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_lp_proj_with_an_orthogonal_projection_is_the_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, cohort: int, everyone: bool, p: float
) -> None:
    """P is the Gram-Schmidt of the dense one."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 4, "lam": 0.6, "R": 2}
    P = gram_schmidt(matrix(Dense(), 6))
    oracle = Oracle(slope, linear.start().numpy(), cohort, everyone)
    w, x = oracle.run(P, p, np.zeros(6), eta=lambda t: 0.2, **settings)
    method = LpProj(p=p, dim=6, projection=Orthogonal(), eta=0.2, batch=None, **settings)
    done = run(linear, data, method, **who(cohort, everyone))
    assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10


EVERY_KIND = pytest.mark.parametrize("projection", KINDS.values(), ids=KINDS)


@pytest.mark.few(2)
@EVERY_KIND
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_lp_proj_with_any_projection_is_the_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, projection: Projection, p: float
) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "steps": 4, "lam": 0.6, "R": 2}
    like = torch.zeros(1, D, dtype=torch.float64)
    P = projection.build(SEED, 6, like, linear.layout)
    A = P.lift(torch.eye(P.dim, dtype=torch.float64)).numpy()
    w, x = Oracle(slope, linear.start().numpy(), 3).run(A, p, np.zeros(P.dim), eta=lambda t: 0.2, **settings)
    method = LpProj(p=p, dim=P.dim, projection=projection, eta=0.2, batch=None, **settings)
    done = run(linear, data, method, cohort=3)
    assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10
    assert far(w, np.zeros(P.dim)) > 1e-2


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize("everyone", [False, True])
@pytest.mark.parametrize(
    "work", [MINI, {"lr": 0.1, "nu": 1e-2, "cap": 12, "batch": 3}, MINI | {"batch": PowerLaw(scale=1, power=1)}]
)
def test_lp_proj_in_the_whole_space_with_p_1_is_rsa(
    data: FederatedData, at_zero: Task, work: dict[str, Any], stragglers: float, everyone: bool
) -> None:
    bilevel = work | {"lam": 0.1, "eta": 0.3, "R": 2, "beta": 0.8, "weighted": True}
    settings = who(4, everyone) | {"stragglers": stragglers}
    proj = run(at_zero, data, LpProj(p=1.0, projection=Identity(), **bilevel), **settings)
    rsa = run(at_zero, data, RSA(**bilevel), **settings)
    assert far(personal(proj), personal(rsa)) <= 1e-12 and far(reference(proj), reference(rsa)) <= 1e-12
    assert far(personal(rsa), at_zero.start()[None]) > 1e-2


@pytest.mark.few(1)
@STRAGGLERS
@pytest.mark.parametrize(
    "method",
    [LpProj(dim=0, projection=Orthogonal(), **MINI), RSA(lam=0.0, **MINI)],
    ids=["lp-proj in no dimensions", "rsa with lambda 0"],
)
def test_without_its_penalty_it_is_local_training(
    data: FederatedData, mlp: Task, method: Method, stragglers: float
) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    local = personal(run(mlp, data, Local(**MINI), **settings))
    assert far(personal(run(mlp, data, method, **settings)), local) <= 1e-12
    assert far(local, mlp.start()[None]) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("inner", [{"steps": 1}, {"nu": 1e-17, "cap": 500}], ids=["one step", "exact"])
@pytest.mark.parametrize("lam", [0.3, 1.5])
@pytest.mark.parametrize(
    ("projection", "dim"), [(Dense(), 2), (Orthogonal(), 2), (Orthogonal(), 4), (Identity(), 4), (None, 4)]
)
def test_on_quadratics_it_finds_the_solution_of_its_objective(
    regression: FederatedData,
    plane: Task,
    quadratics: Any,
    projection: Projection | None,
    dim: int,
    lam: float,
    inner: dict[str, Any],
) -> None:
    """x_k = (H_k + lam P'P)^-1 (g_k + lam P'w), w = mean of P x_k; with one step a round, or exact inner solves."""
    H, g, _ = quadratics
    like = torch.zeros(1, 4, dtype=torch.float64)
    P = np.eye(4)
    if projection is not None:
        P = projection.build(SEED, dim, like).lift(torch.eye(dim, dtype=torch.float64)).numpy()
    M = np.linalg.inv(H + lam * P.T @ P)  # [5, d, d]
    w = np.linalg.solve(np.eye(dim) - lam * (P @ M @ P.T).mean(0), P @ np.einsum("kij,kj->ki", M, g).mean(0))
    x = np.einsum("kij,kj->ki", M, g + lam * P.T @ w)
    settings: dict[str, Any] = {"lr": 0.2, "lam": lam, "eta": 0.9 / lam, "batch": None} | inner
    method = PFedMe(**settings)
    if projection is not None:
        method = LpProj(p=2.0, dim=dim, projection=projection, **settings)  # type: ignore[assignment]
    done = run(plane, regression, method, rounds=110 if "steps" in inner else 20 if lam < 1 else 40)
    assert far(reference(done), w) < 1e-6
    assert far(personal(done), x) < 1e-6
    if "nu" in inner:
        assert sum(row["capped"] for row in done.history.rounds) == 0


@pytest.mark.parametrize("method", [LpProj(dim=0, **MINI), LpProjADMM(dim=0, **MINI)], ids=lambda m: m.name)
def test_a_reference_without_numbers_is_warned_of(data: FederatedData, linear: Task, method: Method) -> None:
    said = rf"method\.dim = 0 \({method.name}\): the reference has no number, .* every client trains alone"
    with pytest.warns(NoTieWarning, match=said):
        simulate(linear, data, method, rounds=1, mode="vmap")
