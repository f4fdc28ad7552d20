"""FLAME on linear regression, where its paper's statements are closed forms: solutions, Lemma 3 and Lemma 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from descant import FederatedData, Metric, Task
from descant.aggregators import Mean
from descant.codecs import Native
from descant.coupling import Dense
from descant.engine import Evaluation, Plan, RoundRecord, Simulation
from descant.execution import Vmap
from descant.methods import FLAME, FedADMM, LpProjADMM, Method

Vector = NDArray[np.float64]
State = dict[str, Vector]
D, SEED = 3, 4
SIZES = (3, 9, 5, 7, 4)


def half_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs[:, 0] - targets).square()


@dataclass(frozen=True)
class Regression:
    """f_i(x) = ||X_i x - y_i||^2 / 2 n_i, of clients of different sizes."""

    clients: list[tuple[Vector, Vector]]

    @classmethod
    def drawn(cls, m: int, smoothness: float, seed: int = 0, least: float = 0.2) -> Regression:
        """m clients whose A_i have eigenvalues from `least` times the smoothness up to it."""
        rng, clients = np.random.default_rng(seed), []
        for _ in range(m):
            n = int(rng.integers(D, 12))
            U, V = np.linalg.qr(rng.normal(size=(n, D)))[0], np.linalg.qr(rng.normal(size=(D, D)))[0]
            X = U @ np.diag(np.sqrt(n * smoothness * np.linspace(least, 1, D))) @ V
            clients.append((X, X @ rng.normal(size=D) + rng.normal(size=n)))
        return cls(clients)

    @cached_property
    def n(self) -> Vector:
        return np.array([len(y) for _, y in self.clients], dtype=np.float64)

    @cached_property
    def A(self) -> list[Vector]:  # noqa: N802
        return [X.T @ X / len(y) for X, y in self.clients]

    @cached_property
    def b(self) -> list[Vector]:
        return [X.T @ y / len(y) for X, y in self.clients]

    def alpha(self, weighted: bool) -> Vector:
        return self.n / self.n.sum() if weighted else np.full(len(self.n), 1 / len(self.n))

    def loss(self, i: int, x: Vector) -> float:
        X, y = self.clients[i]
        return float(np.mean((X @ x - y) ** 2) / 2)

    def slope(self, i: int, x: Vector) -> Vector:
        return self.A[i] @ x - self.b[i]

    def solution(self, lam: float, alpha: Vector, P: Vector) -> tuple[Vector, Vector]:
        """w and theta_i of min sum_i alpha_i (f_i(theta_i) + lam/2 ||w - P theta_i||^2), from its optimality:
        theta_i = (A_i + lam P'P)^-1 (b_i + lam P'w) and w = sum_i alpha_i P theta_i. P = I is (135)."""
        R = [np.linalg.inv(A + lam * P.T @ P) for A in self.A]
        left = np.eye(len(P)) - sum(a * lam * P @ r @ P.T for a, r in zip(alpha, R, strict=True))
        right = sum(a * P @ r @ b for a, r, b in zip(alpha, R, self.b, strict=True))
        w = np.linalg.solve(left, right)
        return w, np.stack([r @ (b + lam * P.T @ w) for r, b in zip(R, self.b, strict=True)])

    def consensus(self, alpha: Vector) -> Vector:
        """The minimiser of sum_i alpha_i f_i: what FedADMM solves (19)."""
        together = zip(alpha, self.A, self.b, strict=True)
        A, b = map(sum, zip(*((a * A, a * b) for a, A, b in together), strict=True))
        return np.linalg.solve(A, b)

    def lagrangian(self, s: State, lam: float, rho: float, alpha: Vector) -> float:
        """(10)."""
        total = 0.0
        for i, a in enumerate(alpha):
            theta, w_i, apart = s["theta"][i], s["w_i"][i], s["w_i"][i] - s["w"]
            total += a * (self.loss(i, theta) + lam / 2 * np.sum((theta - w_i) ** 2))
            total += s["pi"][i] @ apart + rho / 2 * apart @ apart
        return total

    def watch(self, method: Method, rounds: int, cohort: int | None = None, start: float = 0.0) -> Iterator[State]:
        """The state before the first round and after each."""
        simulation = self.simulation(method, rounds, cohort, start)
        yield state_of(simulation)
        for record in simulation.run():
            if isinstance(record, RoundRecord):
                assert record.figures.get("capped", 0) == 0  # or the inexact rule was not met
                yield state_of(simulation)

    def last(self, method: Method, rounds: int, cohort: int | None = None) -> State:
        simulation = self.simulation(method, rounds, cohort)
        for record in simulation.run():
            assert not isinstance(record, RoundRecord) or record.figures.get("capped", 0) == 0
        return state_of(simulation)

    def simulation(self, method: Method, rounds: int, cohort: int | None, start: float = 0.0) -> Simulation:
        module = nn.Linear(D, 1, bias=False).double()
        nn.init.constant_(module.weight, start)
        metric = Metric("error", half_squared_error, higher_is_better=False)
        task = Task(module, loss=half_squared_error, metric=metric)
        data = FederatedData.from_arrays([{"train": client} for client in self.clients])
        quiet: dict[str, Any] = {"keep_nonfinite": False, "drop_last": False, "own_start": False, "chunk": None}
        plan = Plan(
            rounds=rounds,
            cohort=cohort or len(data),
            seed=SEED,
            sampling="uniform",
            trainers="cohort",
            stragglers=0.0,
            evaluation=Evaluation(every=10**9, parts=("train",), models=("personal",)),
            aggregator=Mean(),
            codec=Native(),
            **quiet,
        )
        return Simulation(Vmap(task), data, method, plan, len(data))


def state_of(simulation: Simulation) -> State:
    leaves = {**simulation.server.state, **simulation.store.leaves}
    return {name: leaf.numpy().copy() for name, leaf in leaves.items()}


def distance(found: Vector, expected: Vector) -> float:
    return float(np.abs(found - expected).max())


@pytest.fixture(scope="module")
def seven() -> Regression:
    return Regression.drawn(7, smoothness=1.5)


ONE_STEP: dict[str, Any] = {"steps": 1, "lr": 0.3, "batch": None}
SOLVED: dict[str, Any] = {"eps": 1e-2, "upsilon": 0.7, "lr": 0.4, "batch": None}  # down to 1e-22 in 130 rounds
WORK = pytest.mark.parametrize("work", [ONE_STEP, ONE_STEP | {"pull": "global"}, SOLVED], ids=str)
PARTICIPATION = pytest.mark.parametrize(
    ("cohort", "weighted"), [(None, False), (None, True), pytest.param(3, True, marks=pytest.mark.slow)]
)


@pytest.mark.few(1)
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


@pytest.mark.few(1)
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


@pytest.mark.few(1)
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


@pytest.mark.few(2)
@pytest.mark.parametrize(("cohort", "weighted"), [(None, False), (3, False), (3, True)])
@pytest.mark.parametrize("pull", ["local", "global"])
def test_the_dual_is_what_ties_theta_to_w_i(
    seven: Regression, cohort: int | None, weighted: bool, pull: Any
) -> None:
    """Lemma 3: pi_i = lambda alpha_i (theta_i - w_i) at all times, whatever was done to find theta_i."""
    method = FLAME(lam=0.7, rho=0.2, weighted=weighted, pull=pull, steps=2, batch=2, lr=0.3)
    largest, alpha = 0.0, seven.alpha(weighted)
    for t, s in enumerate(seven.watch(method, rounds=30, cohort=cohort, start=2.0)):
        if weighted and t < 20:
            continue  # n is not told before everyone was heard
        assert distance(s["pi"], 0.7 * alpha[:, None] * (s["theta"] - s["w_i"])) < 1e-14
        largest = max(largest, np.abs(s["pi"]).max())
    assert largest > 1e-3


def lemma_1(lam_alpha: float, rho: float, smoothness_alpha: float) -> tuple[bool, float, float]:
    """Whether its three conditions hold; D_1; and the factor of eps_i in (21), less alpha_i^2 / (1 - upsilon_i)."""
    first = lam_alpha**2 * (1 + rho) / rho**2 - (lam_alpha + rho) / 2
    third = (1 - rho**2) / rho**2 * lam_alpha**2 - (smoothness_alpha + rho) / 2
    return first < 0 and rho >= lam_alpha and third > 0, min(rho / 2, -first), 1 / third


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [None, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_lyapunov_value_falls_under_the_conditions_of_lemma_1(cohort: int | None, seed: int) -> None:
    """By at least D_1 times the squared length of the step, with the inexact rule (17) and (18)."""
    m, lam, rho, smoothness, upsilon = 10, 0.1, 0.057, 0.03, 0.7
    problem, alpha = Regression.drawn(m, smoothness, seed), np.full(m, 1 / m)
    holds, D_1, factor = lemma_1(lam / m, rho, smoothness / m)
    assert holds
    iota = factor / m**2 / (1 - upsilon)
    method = FLAME(lam=lam, rho=rho, batch=None, lr=1 / (lam + smoothness), eps=1e-6, upsilon=upsilon)
    states = list(problem.watch(method, rounds=40, cohort=cohort, start=1.0))
    values = [problem.lagrangian(s, lam, rho, alpha) + iota * s["eps"].sum() for s in states]
    for t, (old, new) in enumerate(pairwise(states)):
        moved = m * np.sum((new["w"] - old["w"]) ** 2)
        moved += np.sum((new["w_i"] - old["w_i"]) ** 2) + np.sum((new["theta"] - old["theta"]) ** 2)
        assert values[t] - values[t + 1] >= D_1 * moved > 0


@pytest.mark.slow
@pytest.mark.parametrize("smoothness", [0.03, 1.0, 50.0])
def test_at_the_papers_settings_lemma_1_does_not_apply_and_the_lagrangian_rises(smoothness: float) -> None:
    """m = 10, lambda = 1 and rho = .1 of section VI, with exact local solutions: it rises, and FLAME converges."""
    m, lam, rho = 10, 1.0, 0.1
    problem, alpha = Regression.drawn(m, smoothness), np.full(m, 1 / m)
    assert not lemma_1(lam / m, rho, smoothness / m)[0]
    method = FLAME(lam=lam, rho=rho, batch=None, lr=1 / (lam + smoothness), eps=1e-8, upsilon=0.75)
    values = [problem.lagrangian(s, lam, rho, alpha) for s in problem.watch(method, rounds=5)]
    assert max(np.diff(values)) > 1e-4
    if smoothness >= 1:
        w, _ = problem.solution(lam, alpha, np.eye(D))
        assert distance(problem.last(method, rounds=100)["w"], w) < 1e-6


def test_the_conditions_of_lemma_1_leave_a_narrow_band() -> None:
    """At lambda alpha = .01 and L = 0: rho from .0564 to .0584; from lambda alpha = .15 on there is none."""
    grid = np.arange(0.0001, 1.0, 0.0001)

    def band(lam_alpha: float) -> Vector:
        return np.array([rho for rho in grid if lemma_1(lam_alpha, rho, 0.0)[0]])

    assert band(0.01).min() == pytest.approx(0.0564, abs=2e-4) and band(0.01).max() == pytest.approx(
        0.0584, abs=2e-4
    )
    assert len(band(0.15)) == 0 == len(band(0.5))
