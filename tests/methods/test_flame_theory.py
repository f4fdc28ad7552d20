"""FLAME, lp-proj-2 by ADMM and FedADMM on linear regression: what they converge to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from descant.coupling import Dense
from descant.methods import FLAME, FedADMM, LpProjADMM, Method
from tests.methods.flame_regression import ONE_STEP, SEED, D, Regression, distance

SIZES = (3, 9, 5, 7, 4)


@pytest.fixture(scope="module")
def seven() -> Regression:
    return Regression.drawn(7, smoothness=1.5)


SOLVED: dict[str, Any] = {"eps": 1e-2, "upsilon": 0.7, "lr": 0.4, "batch": None}  # down to 1e-22 in 130 rounds
WORK = pytest.mark.parametrize("work", [ONE_STEP, ONE_STEP | {"pull": "global"}, SOLVED], ids=str)
PARTICIPATION = pytest.mark.parametrize(
    ("cohort", "weighted"), [(None, False), (None, True), pytest.param(3, True, marks=pytest.mark.slow)]
)


@pytest.mark.slow
@WORK
@PARTICIPATION
def test_flame_converges_to_the_solution_of_its_problem(
    seven: Regression, work: dict[str, Any], cohort: int | None, weighted: bool
) -> None:
    lam, rho, alpha = 1.0, 0.1, seven.alpha(weighted)
    method = FLAME(lam=lam, rho=rho, weighted=weighted, **work)
    s = seven.last(method, rounds=130 if cohort is None else 330, cohort=cohort)
    w, theta = seven.solution(lam, alpha, np.eye(D))  # (135), without the lambda of its second sum
    assert distance(s["w"], w) < 1e-7
    assert distance(s["theta"], theta) < 1e-7
    for i in range(7):  # the stationary points (15) and (16)
        assert distance(seven.slope(i, s["theta"][i]), lam * (s["w"] - s["theta"][i])) < 1e-6
        assert distance(seven.slope(i, s["theta"][i]), lam * (s["w_i"][i] - s["theta"][i])) < 1e-6
        assert distance(s["pi"][i], lam * alpha[i] * (s["theta"][i] - s["w_i"][i])) < 1e-12
        assert distance(s["w_i"][i], s["w"]) < 1e-6
    assert distance(alpha @ s["theta"], s["w"]) < 1e-6
    assert np.abs(s["pi"].sum(0)).max() < 1e-6


@pytest.mark.slow
def test_flame_finds_the_weighted_mean_of_orthogonal_designs() -> None:
    """(136): X_i'X_i = n_i b_i I. The lambda that (135) prints in its second sum would scale w by lambda."""
    rng, lam = np.random.default_rng(1), 0.4
    b = np.array([0.5, 2.0, 1.0, 0.7, 1.4])
    designs = [np.linalg.qr(rng.normal(size=(n, D)))[0] * np.sqrt(n * b_i) for n, b_i in zip(SIZES, b, strict=True)]
    problem = Regression([(X, X @ rng.normal(size=D) + rng.normal(size=len(X))) for X in designs])
    local = np.stack([problem.b[i] / b[i] for i in range(5)])  # (130)
    share = b / (b + lam)
    w = share @ local / share.sum()
    s = problem.last(FLAME(lam=lam, rho=0.1, **ONE_STEP), rounds=160)
    assert distance(s["w"], w) < 1e-7
    assert distance(s["theta"], (b[:, None] * local + lam * w) / (b + lam)[:, None]) < 1e-7
    assert distance(s["w"], lam * w) > 0.1


@pytest.mark.slow
@PARTICIPATION
def test_lp_proj_2_by_admm_converges_to_the_solution_of_its_problem(
    seven: Regression, cohort: int | None, weighted: bool
) -> None:
    like = torch.zeros(1, D, dtype=torch.float64)
    P = Dense().build(SEED, 2, like).lift(torch.eye(2, dtype=torch.float64)).numpy()
    method = LpProjADMM(dim=2, lam=1.0, rho=0.1, weighted=weighted, **ONE_STEP)
    s = seven.last(method, rounds=180 if cohort is None else 430, cohort=cohort)
    w, theta = seven.solution(1.0, seven.alpha(weighted), P)
    assert distance(s["w"], w) < 1e-7
    assert distance(s["theta"], theta) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("work", [ONE_STEP, SOLVED | {"upsilon": 0.6}], ids=str)
@PARTICIPATION
def test_fedadmm_converges_to_the_minimiser_of_the_sum(
    seven: Regression, work: dict[str, Any], cohort: int | None, weighted: bool
) -> None:
    method = FedADMM(rho=0.1, weighted=weighted, **work)
    s = seven.last(method, rounds=90 if cohort is None else 220, cohort=cohort)
    expected = seven.consensus(seven.alpha(weighted))
    assert distance(s["w"], expected) < 1e-7
    assert distance(s["theta"], expected) < 1e-7


@pytest.mark.slow
def test_flames_problem_tends_to_fedadmms_as_lambda_grows(seven: Regression) -> None:
    """Section IV-E: theta_i and w tend to the one model of (19), at the rate 1 / lambda."""
    alpha, gaps = seven.alpha(False), []
    consensus = seven.last(FedADMM(rho=0.1, **ONE_STEP), rounds=90)["w"]
    for lam, rounds in ((8.0, 300), (32.0, 700), (128.0, 2400)):
        s = seven.last(FLAME(lam=lam, rho=0.3, batch=None, steps=1, lr=1 / (lam + 1.5)), rounds)
        w, theta = seven.solution(lam, alpha, np.eye(D))
        assert distance(s["w"], w) < 1e-5 and distance(s["theta"], theta) < 1e-5
        gaps.append(distance(s["theta"], consensus))
    assert 3 < gaps[0] / gaps[1] < 5 and 3 < gaps[1] / gaps[2] < 5  # a quarter for four times lambda


def test_flames_rounds_do_not_tend_to_fedadmms_as_lambda_grows(seven: Regression) -> None:
    """It is the problem that has the limit: a round of FLAME moves w by 1 / lambda, one of FedADMM does not."""

    def moved(method: Method) -> float:
        first, second = seven.watch(method, rounds=1)
        return distance(first["w"], second["w"])

    solved: dict[str, Any] = {"batch": None, "eps": 1e-24, "cap": 1000}
    steps = [moved(FLAME(lam=lam, rho=0.3, lr=1 / (lam + 1), **solved)) for lam in (1e2, 1e3, 1e4)]
    assert steps[0] / steps[1] == pytest.approx(10, rel=0.05) and steps[1] / steps[2] == pytest.approx(10, rel=0.01)
    assert moved(FedADMM(rho=0.3, lr=0.3, **solved)) > 100 * steps[1]
