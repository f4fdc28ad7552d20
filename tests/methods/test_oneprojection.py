"""One projection of a full update: a plain NumPy loop, what it is at its ends, and where the remainder goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.coupling import Dense, Fold, Hash, Identity, Projection
from descant.draws import seed_of
from descant.errors import SettingError
from descant.methods import Adam, Ditto, FedAvg, FedAvgM, Hush, LocalView, Method, OneProjection
from tests import held
from tests.methods import execution
from tests.methods.runs import MINI, SEED, N, Vector, cohort_of, column, far, moved, run, same

ROUNDS, M, D = 6, 5, 15  # D: the parameters of `linear`
FULL: dict[str, Any] = {"m": M, "lr": 0.2, "steps": 3, "batch": None, "bits": None}


def matrix(method: OneProjection, round: int, task: Task) -> Vector:
    """S of a round, as a matrix."""
    seed = seed_of(SEED, "projection", round) if method.projection.fresh else SEED
    S = method.projection.build(seed, M, task.start()[None], task.layout)
    found: Vector = S.lift(torch.eye(M, dtype=torch.float64)).numpy()
    return found


def loop(method: OneProjection, task: Task, data: FederatedData, slope: Any, cohort: int) -> Any:
    """w, the clients' v and what they have left after all rounds, one client after the other."""
    w, velocity = task.start().numpy(), np.zeros(D)
    v, left = [w for _ in range(N)], [np.zeros(D) for _ in range(N)]
    hush = (D + D / 50) / (M + D / 50)  # its gain
    g = method.gain if method.gain is not None else 1.0 if method.feedback else hush
    for t in range(1, ROUNDS + 1):
        U, sent, n = g**0.5 * matrix(method, t, task), [], []
        for k in cohort_of(t, cohort):
            x = w
            for _ in range(3):
                x = x - 0.2 * slope(k, x)
            u = x - w + left[k]
            sent.append(U @ u)
            n.append(int(data.train.sizes[k]) if method.weighted else 1)
            if method.feedback:
                left[k] = u - U.T @ sent[-1]
            for _ in range(3):
                v[k] = v[k] - 0.2 * (slope(k, v[k]) + method.lam * (v[k] - w))
        velocity = method.beta * velocity + U.T @ np.average(sent, axis=0, weights=n)
        w = w + velocity
    return w, np.stack(v), np.stack(left)


METHODS = [
    OneProjection(**FULL),
    OneProjection(**FULL, feedback=False),
    OneProjection(**FULL, gain=0.5, weighted=False, beta=0.0),
    OneProjection(**FULL, feedback=False, gain=3.0, projection=Dense(fresh=True)),
    OneProjection(**FULL, projection=Fold(), lam=0.3),
]


@pytest.mark.few(6)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.projection.name}, {m.feedback}, {m.gain}")
def test_it_is_a_plain_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, method: OneProjection, cohort: int
) -> None:
    done = run(linear, data, method, rounds=ROUNDS, cohort=cohort)
    w, v, left = loop(method, linear, data, slope, cohort)
    assert far(held.shared(done), w) <= 1e-10
    assert far(held.personal(done), v) <= 1e-10
    assert far(w, linear.start()) > 1e-2
    if method.feedback:
        assert far(held.by_clients(done)["left"], left) <= 1e-10 and np.abs(left).max() > 1e-2
    else:
        assert "left" not in held.by_clients(done)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("optimizer", [{}, {"optimizer": Adam()}], ids=str)
@pytest.mark.parametrize(("beta", "solver"), [(0.0, FedAvg), (0.6, FedAvgM)])
@pytest.mark.parametrize("projection", [Identity(fresh=True), Fold(fresh=True)], ids=lambda p: p.name)
def test_in_the_whole_space_it_is_ditto_and_nothing_is_left(
    data: FederatedData,
    mlp: Task,
    projection: Projection,
    beta: float,
    solver: type[FedAvg],
    optimizer: Any,
    feedback: bool,
) -> None:
    d, server = mlp.layout.dim, {"beta": beta} if beta else {}
    fields: dict[str, Any] = MINI | optimizer
    one = OneProjection(**fields, m=d, bits=None, beta=beta, projection=projection, feedback=feedback)
    ditto = Ditto(**fields, solver=solver(**fields, **server))
    ours, theirs = (run(mlp, data, method, cohort=4) for method in (one, ditto))
    same(held.shared(ours), held.shared(theirs))
    same(held.personal(ours), held.personal(theirs))
    assert column(ours, "gradients") == column(theirs, "gradients")
    moved(mlp, held.shared(ours))
    if feedback:
        assert float(held.by_clients(ours)["left"].abs().max()) < 1e-12


@pytest.mark.parametrize("projection", [Fold(fresh=True), Hash(fresh=True)], ids=lambda p: p.name)
def test_one_step_a_round_without_feedback_is_hush(
    data: FederatedData, linear: Task, projection: Projection
) -> None:
    """U (x - w) after one step of descent is a step on q; after more steps it is not."""
    for steps in (1, 2):
        fields: dict[str, Any] = FULL | {"steps": steps, "projection": projection}
        one, hush = OneProjection(**fields, feedback=False), Hush(**fields)
        ours, theirs = (run(linear, data, method, cohort=4) for method in (one, hush))
        gap = far(held.shared(ours), held.shared(theirs))
        assert (gap <= 1e-12) == (steps == 1)
        assert column(ours, "bytes_up") == column(theirs, "bytes_up")
        assert column(ours, "bytes_down") == column(theirs, "bytes_down")


class Moving:
    """The view of clients whose steps add the same move to every model."""

    def __init__(self, move: float) -> None:
        self.move = move

    def run(self, step: Any, x: torch.Tensor, *rows: torch.Tensor, work: Any, role: str) -> torch.Tensor:
        assert role == "shared"
        return x + self.move * torch.arange(x.shape[1])


def drawn(method: OneProjection, turn: int, w: torch.Tensor) -> Any:
    return method.projection.build(turn, M, w)


@pytest.mark.parametrize("gain", [None, 0.3, 0.9])
def test_what_was_sent_and_what_is_left_are_what_was_to_be_sent(gain: float | None) -> None:
    method = OneProjection(**FULL, gain=gain)
    torch.manual_seed(4)
    w, left = torch.randn(2, 3, D, dtype=torch.float64)
    S = drawn(method, 1, w)
    q, kept = method.shared_work(S, w, {"left": left}, cast(LocalView, Moving(0.7)))
    to_send = 0.7 * torch.arange(D) + left
    sent = method.stretch(D) * S.lift(q)
    assert float((sent + kept["left"] - to_send).abs().max()) < 1e-14
    if gain is None:
        assert float(S.project(kept["left"]).abs().max()) < 1e-14, "the subspace has all of its own"
    assert float(kept["left"].norm()) <= float(to_send.norm()) * (1 + 1e-14)


def test_what_is_left_is_sent_in_the_end() -> None:
    """Without new moves it fades, by m/d of its square a round on average, and all of it has been sent."""
    method, rounds = OneProjection(**FULL), 60
    torch.manual_seed(5)
    w, first = torch.randn(2, 40, D, dtype=torch.float64)
    left, sent = first, torch.zeros_like(first)
    for turn in range(rounds):
        S = drawn(method, turn, w)
        q, kept = method.shared_work(S, w, {"left": left}, cast(LocalView, Moving(0.0)))
        left, sent = kept["left"], sent + S.lift(q)
    assert float(left.norm() / first.norm()) < 10 * (1 - M / D) ** (rounds / 2) < 1e-3
    torch.testing.assert_close(sent + left, first, rtol=0, atol=1e-12)


def test_who_only_trains_sends_nothing_so_that_feedback_refuses_it(data: FederatedData, linear: Task) -> None:
    with pytest.raises(SettingError, match=r"trainers: not with the method 'one-projection'.*`feedback` to false"):
        run(linear, data, OneProjection(**FULL), cohort=3, trainers="everyone")
    run(linear, data, OneProjection(**FULL, feedback=False), cohort=3, trainers="everyone")


def test_a_gain_that_makes_the_remainder_grow_is_refused() -> None:
    with pytest.raises(SettingError, match=r"OneProjection\.gain = 1\.1.* at most 1 with feedback"):
        OneProjection(gain=1.1)
    assert OneProjection(gain=2.1, feedback=False).stretch(100) == 2.1**0.5
    assert OneProjection().stretch(79_510) == 1
    assert OneProjection(feedback=False).stretch(79_510) == Hush().stretch(79_510)


EVERY = pytest.mark.parametrize(
    "method",
    [OneProjection(m=7, **execution.WORK), OneProjection(m=7, feedback=False, optimizer=Adam(), **execution.WORK)],
    ids=["feedback", "none, adam"],
)


@EVERY
def test_chunks_and_the_loop_change_nothing(method: Method) -> None:
    execution.assert_chunks_and_the_loop_change_nothing(method)


@pytest.mark.slow
@EVERY
def test_compiled_steps_give_what_vmap_gives(method: Method) -> None:
    execution.assert_compiled_steps_give_what_vmap_gives(method)


@pytest.mark.few(2)
@EVERY
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(method: Method, tmp_path: Path, store: str) -> None:
    execution.assert_a_resumed_run_ends_as_the_unbroken_one(method, tmp_path, store=store, commit=1)
