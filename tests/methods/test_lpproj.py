"""lp-proj, pFedMe and RSA in full: settings that depend on the round, orthogonal P, references that overflow.

The oracle is a plain NumPy loop over clients, written from lp-proj's Algorithm 1; on quadratics, the closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from descant import FederatedData, Run, Task, resume, simulate
from descant.aggregators import AGGREGATORS, Aggregator, unheard
from descant.aggregators import RecordFigure as Reports
from descant.coupling import Dense, Identity, Orthogonal, Projection
from descant.engine import RoundRecord, Simulation
from descant.engine.cohort import sample
from descant.errors import SettingError
from descant.methods import RSA, Local, LpProj, Method, PFedMe, PowerLaw, Stages
from descant.methods.base import signed_power
from tests.coupling.projecting import KINDS

Vector = NDArray[np.float64]
SEED, ROUNDS, D = 3, 6, 15
MINI: dict[str, Any] = {"lr": 0.1, "steps": 5, "batch": 3}
PARTICIPATION = pytest.mark.parametrize(("cohort", "everyone"), [(7, False), (3, False), (3, True)])
STRAGGLERS = pytest.mark.parametrize("stragglers", [0.0, 0.6])


def mean(messages: Vector) -> Vector:
    average: Vector = messages.mean(0)
    return average


@dataclass
class Oracle:
    """Algorithm 1, client by client. pFedMe and RSA are P = I and p = 2 or 1, with w^0 the initial model."""

    slope: Any
    theta: Vector
    cohort: int = 7
    everyone: bool = False
    aggregate: Callable[[Vector], Vector] = mean

    def run(
        self,
        P: Vector,
        p: float,
        w: Vector,
        *,
        lr: float,
        lam: float,
        eta: Callable[[int], float],
        R: int,
        steps: int | None = None,
        nu: Callable[[int], float] | None = None,
        cap: int = 0,
    ) -> tuple[Vector, Vector]:
        x = np.tile(self.theta, (7, 1))
        for t in range(1, ROUNDS + 1):
            cohort = sample(SEED, t, self.cohort, torch.ones(7)).tolist()
            w_k = {}
            for k in range(7) if self.everyone else cohort:
                w_k[k] = w
                for _ in range(R):
                    for step in range(steps or cap + 1):
                        g = self.slope(k, x[k]) - lam * P.T @ self.sign(w_k[k] - P @ x[k], p)  # of (3)
                        if nu is not None and (g @ g <= nu(t) or step == cap):
                            break
                        x[k] = x[k] - lr * g
                    w_k[k] = w_k[k] - eta(t) * lam * self.sign(w_k[k] - P @ x[k], p)  # (4)
            w = self.aggregate(np.stack([w_k[k] for k in cohort]))
        return w, x

    def sign(self, c: Vector, p: float) -> Vector:
        """The derivative of |c|^p / p; what is not a number does not pull, as in the authors' code."""
        return np.array([0.0 if ci == 0 or np.isnan(ci) else np.copysign(abs(ci) ** (p - 1), ci) for ci in c])


def matrix(projection: Projection, dim: int) -> Vector:
    """P itself: its rows are the lifts of the unit vectors."""
    eye = torch.eye(dim, dtype=torch.float64)
    P: Vector = projection.build(SEED, dim, torch.zeros(1, D, dtype=torch.float64)).lift(eye).numpy()
    return P


def gram_schmidt(rows: Vector) -> Vector:
    done: list[Vector] = []
    for row in rows:
        for other in done + done:  # twice is enough
            row = row - (row @ other) * other
        done.append(row / np.sqrt(row @ row))
    return np.stack(done)


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    how = {"rounds": ROUNDS, "seed": SEED, "evaluate": 100, "mode": "vmap"} | settings
    return simulate(task, data, method, **how)


def live(done: Run) -> Simulation:
    assert done._simulation is not None and done.collapse is None
    return done._simulation


def personal(done: Run) -> Tensor:
    return live(done).personal(live(done).everyone)[0]


def reference(done: Run) -> Tensor:
    return live(done).server.state["w"]


def far(a: Tensor | Vector, b: Tensor | Vector) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def who(cohort: int, everyone: bool) -> dict[str, Any]:
    return {"cohort": cohort, "trainers": "everyone" if everyone else "cohort"}


def from_round_3(first: float, then: float) -> tuple[Stages, Callable[[int], float]]:
    return Stages(values=((1, first), (3, then))), lambda t: first if t < 3 else then


@pytest.mark.few(3)
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
    assert torch.equal(live(done).shared()[0], reference(done))
    assert far(w, theta) > 1e-2


@pytest.mark.few(4)
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


@pytest.mark.few(6)
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
    method = LpProj(p=p, dim=6, projection=projection, eta=0.2, batch=None, **settings)
    done = run(linear, data, method, cohort=3)
    assert far(reference(done), w) <= 1e-10 and far(personal(done), x) <= 1e-10
    assert far(w, np.zeros(P.dim)) > 1e-2


@pytest.mark.few(2)
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


@pytest.mark.few(2)
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


@dataclass(frozen=True, kw_only=True)
class Flipped(Aggregator):
    """The mean, after the first message was turned round and blown up: w leaves the real numbers by way of inf."""

    name: ClassVar[str] = "flipped"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Reports = unheard
    ) -> dict[str, Tensor]:
        return {name: torch.cat([-1e200 * leaf[:1], leaf[1:]]).mean(0) for name, leaf in leaves.items()}


ATTACK: dict[str, Any] = {"aggregator": Flipped(), "nonfinite": "keep"}
AT_P_1 = pytest.mark.parametrize("kind", [LpProj, RSA])


@AT_P_1
@pytest.mark.parametrize("nonfinite", ["drop", "keep"])
def test_a_reference_that_has_overflowed_is_a_collapse(
    data: FederatedData, linear: Task, kind: type[Method], nonfinite: str
) -> None:
    done = run(linear, data, kind(**MINI), **ATTACK | {"nonfinite": nonfinite})  # type: ignore[call-arg]
    assert done.collapse is not None
    assert (done.collapse.round, done.collapse.why) == (2, "the server's 'w' is not finite")


@pytest.mark.few(2)
@PARTICIPATION
@AT_P_1
def test_as_in_the_authors_code_one_that_is_not_a_number_lets_go(
    data: FederatedData, linear: Task, slope: Any, kind: Any, cohort: int, everyone: bool
) -> None:
    """First w is finite, then infinite (which still pulls), then NaN; from there on it is local training."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 3, "lam": 0.05, "R": 2}

    def flipped(messages: Vector) -> Vector:
        average: Vector = np.concatenate([-1e200 * messages[:1], messages[1:]]).mean(0)
        return average

    theta = linear.start().numpy()
    P = matrix(Dense(), 6) if kind is LpProj else np.eye(D)
    w0 = np.zeros(6) if kind is LpProj else theta
    with np.errstate(all="ignore"):
        w, x = Oracle(slope, theta, cohort, everyone, flipped).run(P, 1.0, w0, eta=lambda t: 0.3, **settings)
    own = {"dim": 6} if kind is LpProj else {}
    method = kind(overflow="local", eta=0.3, batch=None, **settings, **own)
    done = run(linear, data, method, **ATTACK, **who(cohort, everyone))
    assert np.isnan(w).all() and reference(done).isnan().all()
    assert far(personal(done), x) <= 1e-10


def test_a_run_without_its_reference_is_resumed_to_the_bit(
    data: FederatedData, linear: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AGGREGATORS, "flipped", Flipped)

    def stop(record: Any) -> None:
        if isinstance(record, RoundRecord) and record.round == 4:
            raise KeyboardInterrupt

    method, how = RSA(overflow="local", **MINI), ATTACK | {"commit": 1, "rounds": 6}
    unbroken = run(linear, data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        run(linear, data, method, out=tmp_path / "run", progress=stop, **how)
    resumed = resume(tmp_path / "run", linear, data)
    assert reference(resumed).isnan().all()
    assert torch.equal(personal(resumed), personal(unbroken))


@AT_P_1
def test_only_kept_messages_let_a_run_go_on_without_its_reference(
    data: FederatedData, linear: Task, kind: Any
) -> None:
    done = run(linear, data, kind(overflow="local", **MINI), **ATTACK | {"nonfinite": "drop"})
    assert done.collapse is not None
    assert (done.collapse.round, done.collapse.why) == (3, "none of the 7 messages was finite")


@pytest.mark.parametrize("nonfinite", ["drop", "keep"])
@AT_P_1
def test_a_clients_own_reference_that_overflows_is_not_mistaken_for_none(
    data: FederatedData, linear: Task, kind: Any, nonfinite: str
) -> None:
    """w_k goes to infinity in the first alternation and to inf - inf in the second."""
    done = run(linear, data, kind(eta=1e308, lam=1e3, lr=1e-6, steps=1, R=2), nonfinite=nonfinite)
    why = {"drop": "none of the 7 messages was finite", "keep": "the server's 'w' is not finite"}[nonfinite]
    assert done.collapse is not None and (done.collapse.round, done.collapse.why) == (1, why)
    # A third alternation would train on against that: it must not pass for one without a penalty.
    done = run(linear, data, kind(eta=1e308, lam=1e3, lr=1e-6, steps=1, R=3), nonfinite=nonfinite)
    why = "the state 'x' of client '0' is not finite"
    assert done.collapse is not None and (done.collapse.round, done.collapse.why) == (1, why)


anything = st.floats() | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])


@given(st.lists(anything, min_size=1, max_size=6), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_slope_of_the_penalty_keeps_what_is_not_a_number(c: list[float], q: float) -> None:
    with np.errstate(all="ignore"):
        power = np.abs(np.array(c)) ** q
    expected = np.where(np.array(c) == 0, 0.0, np.copysign(power, c))
    expected[np.isnan(c)] = np.nan
    found = signed_power(torch.tensor(c, dtype=torch.float64), q).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda: LpProj(overflow="ignore"), r"LpProj\.overflow = 'ignore': it must be 'collapse' or 'local'"),
        (lambda: RSA(overflow="ignore"), r"RSA\.overflow = 'ignore': it must be 'collapse' or 'local'"),
        (
            lambda: LpProj(overflow="local", p=2.0),
            r"LpProj\.overflow = 'local': it must be 'collapse' unless p = 1",
        ),
    ],
)
def test_settings_out_of_range_are_refused(method: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        method()
