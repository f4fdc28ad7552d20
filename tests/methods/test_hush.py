"""Hush: a plain NumPy loop over clients, what it is at its ends, and under attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.coupling import Dense, Fold, Hadamard, Hash, Identity, PerLayer, Projection
from descant.methods import Adam, Ditto, FedAvg, FedAvgM, Hush, Local, Momentum, OneProjection, PowerLaw
from tests import held
from tests.methods import runs
from tests.methods.hush_loop import FULL, M, loop, matrix, run
from tests.methods.runs import MINI, PARTICIPATION, column, far, same, who

METHODS = [
    Hush(**FULL),
    Hush(**FULL, pool=2, beta=0.0, weighted=False),
    Hush(**FULL, projection=Hash(fresh=True), gain=2.0, lam=0.3),
    Hush(**FULL, projection=Dense(fresh=True)),
    Hush(**FULL, projection=Hadamard(fresh=True), beta=0.0),
    Hush(**FULL, projection=PerLayer(fresh=True, kind=Fold())),
    Hush(**FULL, projection=Fold()),
]


@pytest.mark.few(7)
@PARTICIPATION
@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.projection.name}, pool {m.pool}, beta {m.beta}")
def test_it_is_a_plain_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, method: Hush, cohort: int, everyone: bool
) -> None:
    done = run(linear, data, method, **who(cohort, everyone))
    w, v = loop(method, linear, data, slope, cohort, everyone)
    assert far(held.shared(done), w) <= 1e-10
    assert far(held.personal(done), v) <= 1e-10
    assert far(w, linear.start()) > 1e-2


@pytest.mark.few(1)
@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.5}, {"optimizer": Adam()}], ids=str)
@pytest.mark.parametrize(("beta", "solver"), [(0.0, FedAvg), (0.6, FedAvgM)])
@pytest.mark.parametrize("projection", [Identity(fresh=True), Fold(fresh=True)], ids=lambda p: p.name)
def test_in_the_whole_space_it_is_ditto(
    data: FederatedData, mlp: Task, projection: Projection, beta: float, solver: type[FedAvg], optimizer: Any
) -> None:
    """A fold into d buckets is a permutation with signs, which steps of descent, momentum and Adam commute with."""
    d, server = mlp.layout.dim, {"beta": beta} if beta else {}
    hush = Hush(**MINI, **optimizer, m=d, bits=None, beta=beta, lam=0.7, projection=projection)
    ditto = Ditto(**MINI, **optimizer, lam=0.7, solver=solver(**MINI, **optimizer, **server))
    ours, theirs = (run(mlp, data, method, cohort=4) for method in (hush, ditto))
    same(held.shared(ours), held.shared(theirs))
    same(held.personal(ours), held.personal(theirs))
    assert column(ours, "gradients") == column(theirs, "gradients")
    assert column(ours, "bytes_up") == column(theirs, "bytes_up")
    runs.moved(mlp, held.shared(ours))


@pytest.mark.parametrize("kind", [Hush, partial(OneProjection, feedback=False)], ids=["hush", "one-projection"])
@pytest.mark.parametrize("rate", [0.3, PowerLaw(scale=0.3)], ids=["a number", "by round"])
def test_the_shared_model_may_have_a_rate_of_its_own(
    data: FederatedData, mlp: Task, kind: Callable[..., Hush], rate: Any
) -> None:
    """In the whole space that is Ditto over a solver with another rate."""
    hush = kind(**MINI, shared_lr=rate, m=mlp.layout.dim, bits=None, beta=0.6, lam=0.7)
    ditto = Ditto(**MINI, lam=0.7, solver=FedAvgM(**{**MINI, "lr": rate}, beta=0.6))
    ours, theirs = (run(mlp, data, method, cohort=4) for method in (hush, ditto))
    same(held.shared(ours), held.shared(theirs))
    same(held.personal(ours), held.personal(theirs))


def test_without_a_tie_it_is_local_training(data: FederatedData, mlp: Task) -> None:
    ours = run(mlp, data, Hush(**MINI, lam=0.0), cohort=4)
    theirs = run(mlp, data, Local(**MINI), cohort=4)
    assert torch.equal(held.personal(ours), held.personal(theirs))


@pytest.mark.parametrize(("pool", "inside"), [(1, True), (2, True), (3, False), (None, False)])
def test_with_a_pool_w_stays_in_the_span_of_its_subspaces(
    data: FederatedData, linear: Task, pool: int | None, inside: bool
) -> None:
    """Two subspaces of 5 of 15 dimensions do not reach all; three, and one for each step, do."""
    method = Hush(**FULL, pool=pool)
    moved = held.shared(run(linear, data, method)).numpy() - linear.start().numpy()
    span = np.concatenate([matrix(method, step, linear) for step in range(2)])
    left = moved - span.T @ np.linalg.lstsq(span.T, moved, rcond=None)[0]
    assert (float(np.abs(left).max()) < 1e-10) == inside


def test_a_subspace_that_is_not_fresh_is_the_same_in_all_rounds(data: FederatedData, linear: Task) -> None:
    method = Hush(**FULL, projection=Fold())
    moved = held.shared(run(linear, data, method)).numpy() - linear.start().numpy()
    U = matrix(method, 0, linear)
    assert float(np.abs(moved - U.T @ np.linalg.lstsq(U.T, moved, rcond=None)[0]).max()) < 1e-10


def test_the_stretch_restores_the_step_and_is_none_in_the_whole_space() -> None:
    for d in (30, 1000, 79_510, 11_000_000):
        gains = [replace(Hush(), m=m).stretch(d) ** 2 for m in (1, 10, 30)]
        assert all(a > b >= 1 for a, b in pairwise(gains))
        assert all(gain <= d / m + 1e-9 for gain, m in zip(gains, (1, 10, 30), strict=True))
        assert replace(Hush(), m=d).stretch(d) == 1
    assert Hush(gain=9.0).stretch(1000) == 3
    # a fiftieth of the directions is taken for curved, and never more than 500 are
    assert replace(Hush(), m=100).stretch(1000) ** 2 == pytest.approx(1020 / 120)
    assert replace(Hush(), m=100).stretch(100_000) ** 2 == pytest.approx(100_500 / 600)


@pytest.mark.slow
def test_attackers_forge_q_and_the_median_holds_them_off(data: FederatedData, linear: Task) -> None:
    how: dict[str, Any] = {"rounds": 20, "malicious": [2, 4], "attacks": {"name": "sign-flip", "tau": 50.0}}
    method = Hush(**MINI, m=M, weighted=False)
    clean = held.shared(run(linear, data, method, rounds=20))
    mean, median = (
        held.shared(run(linear, data, method, aggregator=name, **how)) for name in ("mean", "coordinate-median")
    )
    assert far(median, clean) < far(mean, clean) / 10


def test_momentum_is_an_optimizer_of_the_client_too(data: FederatedData, linear: Task) -> None:
    short, long = Hush(**MINI, momentum=0.5), Hush(**MINI, optimizer=Momentum(beta=0.5))
    assert torch.equal(*(held.shared(run(linear, data, method)) for method in (short, long)))
