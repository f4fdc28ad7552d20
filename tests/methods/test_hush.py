"""Hush: a plain NumPy loop over clients, what it is at its ends, and what all parties build from what was said."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import descant as dc
from descant import FederatedData, Run, Task
from descant.coupling import Dense, Fold, Hadamard, Hash, Identity, PerLayer, Projection
from descant.draws import seed_of
from descant.errors import SettingError
from descant.methods import Adam, Ditto, FedAvg, FedAvgM, Hush, Local, Momentum
from tests import held
from tests.methods import runs
from tests.methods.runs import MINI, PARTICIPATION, SEED, N, Vector, cohort_of, column, far, same, who

ROUNDS, M, D = 6, 5, 15  # D: the parameters of `linear`
FULL: dict[str, Any] = {"m": M, "lr": 0.2, "steps": 3, "batch": None, "bits": None}
FRESH = Fold(fresh=True)


def run(task: Task, data: FederatedData, method: Hush | Ditto | Local, **settings: Any) -> Run:
    return runs.run(task, data, method, **{"rounds": ROUNDS} | settings)


def matrix(method: Hush, step: int, task: Task) -> Vector:
    """U of a step, as a matrix."""
    turn = step if method.pool is None else step % method.pool
    seed = seed_of(SEED, "projection", turn + 1) if method.projection.fresh else SEED
    S = method.projection.build(seed, M, task.start()[None], task.layout)
    U: Vector = method.stretch(D) * S.lift(torch.eye(M, dtype=torch.float64)).numpy()
    return U


def loop(method: Hush, task: Task, data: FederatedData, slope: Any, cohort: int, everyone: bool) -> Any:
    """w and the clients' v after all rounds, one client after the other, from the method's description."""
    w, velocity = task.start().numpy(), np.zeros(D)
    v = [w for _ in range(N)]
    for t in range(1, ROUNDS + 1):
        U, sent, n = matrix(method, t - 1, task), [], []
        for k in range(N):
            if k in cohort_of(t, cohort):
                q = np.zeros(M)
                for _ in range(3):
                    q = q - 0.2 * U @ slope(k, w + U.T @ q)
                sent.append(q)
                n.append(int(data.train.sizes[k]) if method.weighted else 1)
            if everyone or k in cohort_of(t, cohort):
                for _ in range(3):
                    v[k] = v[k] - 0.2 * (slope(k, v[k]) + method.lam * (v[k] - w))
        velocity = method.beta * velocity + U.T @ np.average(sent, axis=0, weights=n)
        w = w + velocity
    return w, np.stack(v)


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


@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.5}, {"optimizer": Adam()}], ids=str)
@pytest.mark.parametrize(("beta", "solver"), [(0.0, FedAvg), (0.6, FedAvgM)])
@pytest.mark.parametrize("projection", [Identity(fresh=True), FRESH], ids=lambda p: p.name)
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


def said(task: Task, data: FederatedData, method: Hush) -> tuple[list[Vector], Run]:
    """The q of every step, read from the bytes that were said, by bits; and the whole run."""
    assert method.bits is not None
    steps = []
    for rounds in range(1, ROUNDS + 1):  # a shorter run is the beginning of a longer one
        done = run(task, data, method, rounds=rounds, cohort=3)
        server = held.by_server(done)
        octets = method.said(server["q"], server["span"]).numpy()
        span, bits = octets[:8].view(np.float64)[0], np.unpackbits(octets[8:], bitorder="little")
        weights = 2 ** np.arange(method.bits)
        points = np.array([int(bits[i * method.bits :][: method.bits] @ weights) for i in range(M)])
        steps.append(span * (2 * points / (2**method.bits - 1) - 1))
        assert len(octets) == 8 + -(-M * method.bits // 8)
    return steps, done


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize(("bits", "pool", "beta"), [(8, None, 0.6), (3, 2, 0.6), (4, 2, 0.0), (1, 1, 0.9)])
def test_all_parties_build_w_from_what_was_said(
    data: FederatedData, linear: Task, bits: int, pool: int | None, beta: float, nearest: bool
) -> None:
    """Step by step; and, with a pool, from the sums of each subspace."""
    method = Hush(**FULL | {"bits": bits}, pool=pool, beta=beta, nearest=nearest)
    steps, done = said(linear, data, method)
    x0 = linear.start().numpy()
    w, velocity = x0, np.zeros(D)
    for t, q in enumerate(steps):
        velocity = beta * velocity + matrix(method, t, linear).T @ q
        w = w + velocity
    assert far(held.shared(done), w) <= 1e-12 and far(w, x0) > 1e-2
    assert far(held.by_server(done)["velocity"], velocity) <= 1e-12
    if pool is not None:
        A, B = np.zeros((pool, M)), np.zeros((pool, M))
        for t, q in enumerate(steps):
            A[t % pool] += q
            B[t % pool] += beta ** (ROUNDS - 1 - t) * q
        U = np.stack([matrix(method, j, linear) for j in range(pool)])
        anew = x0 + np.einsum("pmd,pm->d", U, (A - beta * B) / (1 - beta))
        assert far(held.shared(done), anew) <= 1e-12
        assert method.numbers(D) == min(D, pool * M) * (2 if beta else 1)


@pytest.mark.parametrize(
    ("settings", "anew"),
    [
        ({"bits": None}, 2 * D * 8),  # w and the velocity
        ({"bits": None, "beta": 0.0}, D * 8),
        ({"bits": None, "pool": 1}, 2 * M * 8),
        ({"bits": None, "pool": 2, "beta": 0.0}, 2 * M * 8),
        ({"bits": 5}, 2 * D * 8),
        ({"bits": 5, "pool": 1, "beta": 0.0}, M * 8),
    ],
    ids=str,
)
@pytest.mark.few(6)
def test_a_client_pays_for_what_it_missed_or_for_all_anew(
    data: FederatedData, linear: Task, settings: dict[str, Any], anew: int
) -> None:
    rounds, cohort = 14, 1
    method = Hush(**FULL | {"steps": 1} | settings)
    done = run(linear, data, method, rounds=rounds, cohort=cohort)
    one = 8 * M if method.bits is None else 8 + 4  # of doubles: numbers, or a span and 25 bits
    known, paid, cheaper = [0] * N, [0] * N, set()
    for t in range(1, rounds + 1):
        for k in cohort_of(t, cohort):
            missed = one * (t - 1 - known[k])
            cheaper.add(anew < missed)
            paid[k] += min(missed, anew)
            known[k] = t - 1
    assert done.history.spent[rounds]["bytes_down"].tolist() == paid
    assert held.by_clients(done)["known"].tolist() == known
    assert cheaper == {True, False} or (method.bits == 5 and method.pool is None)
    assert column(done, "bytes_up") == [one + 4] * rounds, "what is said, and the number of examples"


def test_mail_that_is_lost_is_no_step(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, Hush(**FULL), cohort=1, lost=0.5, rounds=12)
    received = [row["received"] for row in done.history.rounds]
    assert 0 < sum(received) < 12
    assert int(held.by_server(done)["step"]) == sum(received)


@pytest.mark.slow
def test_numbers_in_few_bits_are_right_in_the_mean(data: FederatedData, linear: Task) -> None:
    """After one round, over seeds, which draw other subspaces: each beside its own run without rounding."""
    gaps = []
    for seed in range(40):
        exact, coarse = (
            held.shared(run(linear, data, Hush(**FULL | {"bits": bits}), rounds=1, seed=seed)) for bits in (None, 2)
        )
        gaps.append(coarse - exact)
    gap = torch.stack(gaps)
    assert float(gap.abs().mean()) > 1e-3, "it is rounded"
    error = gap.std(0) / len(gap) ** 0.5
    assert float((gap.mean(0) / error).abs().max()) < 4


def test_the_stretch_restores_the_step_and_is_none_in_the_whole_space() -> None:
    for d in (30, 1000, 79_510, 11_000_000):
        gains = [replace(Hush(), m=m).stretch(d) ** 2 for m in (1, 10, 30)]
        assert all(a > b >= 1 for a, b in pairwise(gains))
        assert all(gain <= d / m + 1e-9 for gain, m in zip(gains, (1, 10, 30), strict=True))
        assert replace(Hush(), m=d).stretch(d) == 1
    assert Hush(gain=9.0).stretch(1000) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("m", 0),
        ("m", 1.5),
        ("m", -0.1),
        ("bits", 0),
        ("bits", 17),
        ("pool", 0),
        ("beta", 1.0),
        ("lam", -1.0),
        ("gain", 0.0),
    ],
)
def test_fields_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"Hush.{field} = "):
        Hush(**{field: value})


def test_a_dimension_below_one_is_a_share(data: FederatedData, linear: Task) -> None:
    share, number = (run(linear, data, Hush(**FULL | {"m": m})) for m in (1 / 3, M))
    assert torch.equal(held.shared(share), held.shared(number))
    assert Hush().dim(79_510) == 2942 and Hush(m=0.04).dim(3) == 1


def test_more_dimensions_than_the_model_has_are_refused(data: FederatedData, linear: Task) -> None:
    with pytest.raises(SettingError, match=r"method\.m = 16: it must be at most 15, the number of the"):
        run(linear, data, Hush(m=16))


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


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"codec": {"name": "top-k", "share": 0.2}}, "codec: 'top-k' remembers what it sent"),
        ({"codec": "lbgm"}, "codec: 'lbgm' remembers"),
        ({"aggregator": "centered-clipping"}, "aggregator: 'centered-clipping' remembers"),
        ({"downlink": "float16"}, "downlink: not with the method 'hush'"),
    ],
)
def test_nothing_is_remembered_of_a_subspace_that_is_gone(settings: dict[str, Any], said: str) -> None:
    data = dc.data.synthetic(clients=4, samples=20, seed=1)

    def run(**more: Any) -> dc.Run:
        return dc.simulate(nn.Linear(60, 10), data, Hush(m=20, steps=2, batch=4, **more), rounds=2, **settings)

    with pytest.raises(SettingError, match=said):
        run()
    if "downlink" not in settings:
        assert run(projection=Fold()).collapse is None, "one subspace for ever"


def test_a_pool_needs_subspaces_to_draw_and_one_point_zero_is_no_number_of_dimensions() -> None:
    with pytest.raises(SettingError, match="pool = 4"):
        Hush(pool=4, projection=Fold())
    with pytest.raises(SettingError, match=r"m = 1\.0"):
        Hush(m=1.0)
