"""lp-proj's Theorem 14: the simulator's lp-proj with the theorem's schedule, beside what is known of its error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Task, simulate
from descant.coupling import Dense, Identity
from descant.engine.cohort import sample_uniform
from descant.errors import SettingError
from descant.methods import LpProj, PowerLaw
from descant.methods.base import Aggregate, Messages, Tree
from descant.theory import Theorem14, quadratics
from descant.theory.rates import sampling_error, smoothness


@dataclass(frozen=True, kw_only=True)
class Traced(LpProj):
    """lp-proj that keeps its references."""

    name: ClassVar[str] = "traced lp-proj"
    trace: ClassVar[list[Tensor]] = []

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        new = super().server(server, messages, aggregate)
        self.trace.append(new["w"])
        return new


def scheduled(theorem: Theorem14, **fields: Any) -> Traced:
    """lp-proj with the step sizes of Theorem 14, and its accuracy of the lower level unless `nu` is given."""
    eta = PowerLaw(scale=8 / (theorem.beta * theorem.R * theorem.mu_F), shift=theorem.zeta, power=-1)
    nu = PowerLaw(scale=8 / theorem.mu_F, shift=theorem.zeta, power=-1)
    for t in (0, 7, 1000):
        assert eta.at(t + 1) == pytest.approx(theorem.eta(t)) and nu.at(t + 1) == pytest.approx(theorem.nu(t))
    return Traced(**{"eta": eta, "nu": nu, "beta": theorem.beta, "R": theorem.R} | fields)


def references(method: Traced, h: Tensor, curvature: Tensor, **settings: Any) -> Tensor:  # [rounds, m]
    """The reference after each round, where client k's loss is 1/2 sum_j curvature_kj (x_j - h_kj)^2."""
    d = h.shape[1]
    inputs = [
        torch.diag((c * d / 2).sqrt()) for c in curvature
    ]  # the task's squared error is a mean over d examples
    data = FederatedData.from_arrays([{"train": (X, X @ h_k)} for X, h_k in zip(inputs, h, strict=True)])
    model = nn.Linear(d, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    method.trace.clear()
    run = simulate(Task(model, "squared_error"), data, method, mode="vmap", evaluate=settings["rounds"], **settings)
    assert run.collapse is None
    return torch.stack(method.trace)


def centres(K: int, d: int) -> Tensor:
    return torch.randn(K, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@pytest.mark.few(1)
@pytest.mark.parametrize(("beta", "R"), [(1.0, 1), (7.0, 3)])
def test_the_simulators_reference_moves_as_the_exact_error_assumes(beta: float, R: int) -> None:
    """With one curvature b and exact lower levels: w <- w - g_t (w - mean of the cohort's centres)."""
    K, S, b, lam, rounds = 6, 2, 2.0, 1.5, 8
    h = centres(K, 3)
    mu_F, L_F = smoothness(lam, b, b)
    assert mu_F == L_F == lam * b / (lam + b)
    schedule = Theorem14(mu_F=mu_F, beta=beta, R=R)
    method = scheduled(schedule, p=2.0, projection=Identity(), lam=lam, lr=0.25, nu=1e-26, batch=None)
    found = references(method, h, torch.full_like(h, b), rounds=rounds, cohort=S, seed=5)
    w = torch.zeros(3, dtype=torch.float64)
    for t in range(rounds):
        cohort = sample_uniform(5, t + 1, S, K)
        eta = 8 / (beta * R * mu_F * (72 * (1 + 7 / beta) + t))
        g = beta * (1 - (1 - eta * mu_F) ** R)
        w = w - g * (w - h[cohort].mean(0))
        torch.testing.assert_close(found[t], w, atol=1e-10, rtol=0)


def test_the_exact_error_is_the_mean_over_all_cohorts() -> None:
    """Two rounds of 2 of 4 clients: all 36 sequences of cohorts, with equal chances."""
    from itertools import combinations, product

    schedule, h = Theorem14(mu_F=0.7, beta=2.0, R=2), centres(4, 2).numpy()
    centre = h.mean(0)
    errors = []
    for cohorts in product(combinations(range(4), 2), repeat=2):
        w = np.zeros(2)
        for t, cohort in enumerate(cohorts):
            g = 2.0 * (1 - (1 - schedule.eta(t) * 0.7) ** 2)
            w = w - g * (w - h[list(cohort)].mean(0))
        errors.append(((w - centre) ** 2).sum())
    start, spread = float((centre**2).sum()), float(((h - centre) ** 2).sum(1).mean())
    assert sampling_error(schedule, 2, start, spread, 4, 2)[2] == pytest.approx(np.mean(errors), rel=1e-12)


def test_the_exact_error_falls_as_one_over_t() -> None:
    error = sampling_error(Theorem14(mu_F=0.5, beta=7.0), 100_000, 4.0, 2.0, N=10, S=3)
    slope = np.log(error[100_000] / error[20_000]) / np.log(5)
    assert -1.01 < slope < -0.98
    everyone = sampling_error(Theorem14(mu_F=0.5, beta=7.0), 1000, 4.0, 2.0, N=10, S=10)
    assert everyone[1000] < 1e-10  # without sampling only the start is left, and it is forgotten faster


@pytest.mark.slow
def test_lp_projs_error_falls_as_one_over_t_on_a_strongly_convex_problem() -> None:
    """Different curvatures, a random P with rows that are not orthogonal, sampled cohorts, inexact lower levels."""
    K, S, d, m, lam, rounds = 20, 5, 80, 8, 1.0, 6400
    h = centres(K, d)
    curvature = 1.5 + torch.rand(K, d, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    P = Dense().build(0, m, h).project(torch.eye(d, dtype=torch.float64)).T
    s = float((torch.linalg.svdvals(P) - 1).abs().max())  # Proposition 3: singular values in [1 - s, 1 + s]
    assert 0.05 < s < 0.6
    mu_F, L_F = smoothness(lam, float(curvature.min()), float(curvature.max()), s)
    schedule = Theorem14(mu_F=mu_F, kappa_F=L_F / mu_F, beta=20.0)
    w = quadratics.lp_proj(torch.diag_embed(curvature), h, lam, P)[1]
    method = scheduled(schedule, p=2.0, dim=m, lam=lam, lr=0.3, batch=None)
    found = references(method, h, curvature, rounds=rounds, cohort=S, seed=0)
    errors = (found - w).square().sum(1)
    firsts = np.array([100, 200, 400, 800, 1600, 3200])
    windows = [float(errors[first : 2 * first].mean()) for first in firsts]
    slope = np.polyfit(np.log(schedule.zeta + 1.5 * firsts), np.log(windows), 1)[0]
    assert -1.3 < slope < -0.8
    assert windows[-1] < windows[0] / 8


@pytest.mark.parametrize(("field", "value"), [("mu_F", 0.0), ("kappa_F", 0.5), ("beta", 0.5), ("R", 0)])
def test_a_bad_setting_is_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=rf"Theorem14\.{field} = "):
        replace(Theorem14(mu_F=1.0), **{field: value})
