"""Federation health: jumps, distances and losses on the way to the aggregate, against loops written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from descant import FederatedData, Health, Run, Task
from descant.aggregators import CoordinateMedian
from descant.attacks import SignFlip
from descant.errors import SettingError
from descant.methods import (
    APFL,
    L2SGD,
    METHODS,
    MOCHA,
    Ditto,
    FedAvg,
    FedPer,
    FedPlus,
    FineTune,
    Local,
    Method,
    PFedMe,
)
from tests.methods.runs import cohort_of, far, run, shared

Vector = NDArray[np.float64]
Loss = Callable[[int, Vector], float]
ROUNDS, POINTS = 4, (0.0, 0.3, 1.0)
FIGURES = ("jump", "distance", "loss_began", "loss_at_0", "loss_at_0.3", "loss_at_1")


@pytest.fixture(scope="module")
def loss(regression: FederatedData) -> Loss:
    """f_k(x) = |A x - b|^2 / n, in NumPy."""
    clients = [(A.numpy(), b.numpy()) for A, b in map(regression.train.client, range(len(regression)))]

    def of(k: int, x: Vector) -> float:
        A, b = clients[k]
        return float(((A @ x - b) ** 2).mean())

    return of


class Seen:
    """What a loop saw of one client in one round."""

    def __init__(self, loss: Loss, k: int, began: Vector, local: Vector) -> None:
        self.loss, self.k, self.began, self.local = loss, k, began, local

    def row(self, after: Vector, aggregate: Vector) -> list[float]:
        way = [(1 - theta) * self.local + theta * aggregate for theta in POINTS]
        norms = [float(np.linalg.norm(end - self.local)) for end in (after, aggregate)]
        return [*norms, self.loss(self.k, self.began), *(self.loss(self.k, x) for x in way)]


def first(task: Task) -> Vector:
    return task.start().numpy().astype(float)


def rows_of(done: Run, round: int) -> Vector:
    return done.health.filter(pl.col("round") == round).select(FIGURES).to_numpy()


def looked(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    health = Health(rounds=1, points=POINTS)
    return run(task, data, method, rounds=ROUNDS, health=health, **settings)


def check(done: Run, expected: dict[int, list[list[float]]]) -> None:
    assert done.health["round"].unique(maintain_order=True).to_list() == list(expected)
    for round, rows in expected.items():
        np.testing.assert_allclose(rows_of(done, round), rows, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 2])
def test_fedavg_begins_at_w_and_jumps_from_w_k_to_the_new_w(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss, chunk: int | None
) -> None:
    (H, g, n), w, expected = quadratics, first(plane), {}
    for t in range(1, ROUNDS + 1):
        cohort = cohort_of(t, 3, clients=5)
        seen = []
        for k in cohort:
            x = w
            for _ in range(2):
                x = x - 0.05 * (H[k] @ x - g[k])
            seen.append(Seen(loss, k, w, x))
        w = sum(n[s.k] * s.local for s in seen) / sum(n[k] for k in cohort)
        expected[t] = [s.row(w, w) for s in seen]
    method = FedAvg(lr=0.05, steps=2, batch=None)
    done = looked(plane, regression, method, cohort=3, chunk=chunk)
    check(done, expected)
    assert done.health.filter(pl.col("round") == 2)["client"].to_list() == cohort_of(2, 3, clients=5)


@pytest.mark.parametrize("lam", [0.0, 0.25])
def test_fedplus_goes_on_between_its_own_model_and_w(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss, lam: float
) -> None:
    """With lam = 0, as in the paper's Figure 1, nobody jumps; the aggregate is as far away as it is."""
    (H, g, _), w, expected, sigma, delta = quadratics, first(plane), {}, 0.3, 0.5
    own = [w] * 5
    kappa = 1 / (1 + 0.05 * sigma)
    for t in range(1, ROUNDS + 1):
        seen = []
        for k in range(5):
            anchor = w + (own[k] - w) / (1 + delta)  # theta_k of FedAvg+
            start = x = (1 - lam) * own[k] + lam * w
            for _ in range(3):
                x = kappa * (x - 0.05 * (H[k] @ x - g[k])) + (1 - kappa) * anchor
            seen.append(Seen(loss, k, start, x))
        own = [s.local for s in seen]
        w = np.mean(own, axis=0)
        expected[t] = [s.row((1 - lam) * s.local + lam * w, w) for s in seen]
    method = METHODS["fedavg+"](lr=0.05, steps=3, batch=None, sigma=sigma, delta=delta, lam=lam)  # type: ignore
    done = looked(plane, regression, method)
    check(done, expected)
    assert (done.health["jump"].max() == 0) == (lam == 0) and done.health["distance"].min() > 1e-3


def test_dittos_personal_model_stays_while_the_shared_one_is_elsewhere(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss
) -> None:
    (H, g, n), w, expected = quadratics, first(plane), {}
    v = [w] * 5
    for t in range(1, ROUNDS + 1):
        seen, copies = [], []
        for k in range(5):
            x = w - 0.05 * (H[k] @ w - g[k])
            copies.append(x)
            y = v[k]
            for _ in range(2):
                y = y - 0.04 * (H[k] @ y - g[k] + 0.7 * (y - w))
            seen.append(Seen(loss, k, v[k], y))
        v, w = [s.local for s in seen], sum(n[k] * copies[k] for k in range(5)) / n.sum()
        expected[t] = [s.row(s.local, w) for s in seen]
    method = Ditto(lam=0.7, lr=0.04, steps=2, batch=None, solver=FedAvg(lr=0.05, steps=1, batch=None))
    check(looked(plane, regression, method), expected)


def test_a_round_of_l2sgd_that_talks_moves_everyone_towards_the_mean(
    plane: Task, regression: FederatedData, quadratics: Any, loss: Loss
) -> None:
    (H, g, _), expected, talked = quadratics, {}, 0
    x, method = [first(plane)] * 5, L2SGD(p=0.5, lam=0.8, lr=0.05, batch=None)
    done = looked(plane, regression, method)
    for t in range(1, ROUNDS + 1):
        began = x
        if done.rounds["bytes_up"][t - 1]:  # heads
            mean, talked = np.mean(x, axis=0), talked + 1
            local, x = x, [one - 0.05 * 0.8 / 0.5 * (one - mean) for one in x]
        else:
            local = x = [x[k] - 0.05 / 0.5 * (H[k] @ x[k] - g[k]) for k in range(5)]
        expected[t] = [Seen(loss, k, began[k], local[k]).row(x[k], x[k]) for k in range(5)]
    assert 0 < talked < ROUNDS
    check(done, expected)


def two_layers(data: FederatedData) -> Task:
    torch.manual_seed(4)
    return Task(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double())


STAY = {"local", "ditto", "pfedme", "rsa", "lp-proj", "fed+", "fedavg+", "fedgeomed+", "fedcomed+", "flame"}
STAY |= {"lp-proj-admm", "mr-mtl", "fedamp", "fedadmm", "hush", "pfed1bs", "pfedlms"}
PART_OF_THE_WAY = {"apfl", "mapper", "fedala", "l2sgd"}  # they mix the aggregate with something of their own


@pytest.mark.few(4)
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mocha"}))
def test_who_goes_on_from_its_own_model_does_not_jump_and_who_takes_the_shared_one_goes_all_the_way(
    data: FederatedData, name: str
) -> None:
    done = run(two_layers(data), data, METHODS[name](steps=2), rounds=3, health=[3])  # type: ignore[call-arg]
    jump, distance = done.health["jump"].to_numpy(), done.health["distance"].to_numpy()
    assert len(jump) == len(data) and np.isfinite(done.health.to_numpy()).all()
    if name in STAY:
        assert (jump == 0).all() and (METHODS[name].has_shared == (distance > 0).any())
    elif name not in PART_OF_THE_WAY:
        np.testing.assert_array_equal(jump, distance)
        assert (jump > 0).all()
    assert (jump <= distance + 1e-12).all()


@pytest.mark.few(4)
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mocha"}))
def test_nothing_of_a_run_changes_where_its_health_is_looked_at(data: FederatedData, name: str) -> None:
    method = METHODS[name](steps=2, batch=3)  # type: ignore[call-arg]
    how: dict[str, Any] = {"rounds": 3, "cohort": 4, "evaluate": 1, "stragglers": 0.3}
    plain, looked_at = (run(two_layers(data), data, method, health=health, **how) for health in (None, 1))
    assert plain.health.is_empty() and len(looked_at.health) == 12
    assert plain.clients.equals(looked_at.clients)
    assert plain.rounds.drop("seconds").equals(looked_at.rounds.drop("seconds"))


def test_mocha_goes_up_its_dual_and_is_told_where_the_others_took_it(data: FederatedData) -> None:
    """Its models are one for every client, so that the aggregate is what its next work starts from."""
    task = Task(nn.Linear(4, 3).double())
    how: dict[str, Any] = {"rounds": 3, "evaluate": 1}
    plain, seen = (run(task, data, MOCHA(lam=0.1, every=1), health=health, **how) for health in (None, 1))
    assert plain.clients.equals(seen.clients)
    for t in (1, 2, 3):
        rows = seen.health.filter(pl.col("round") == t)
        before = seen.clients.filter(pl.col("round") == t - 1)["train_loss"].to_numpy()
        after = seen.clients.filter(pl.col("round") == t)["train_loss"].to_numpy()
        np.testing.assert_allclose(rows["loss_began"], before, rtol=1e-12)
        np.testing.assert_allclose(rows["loss_at_1"], after, rtol=1e-12)
        np.testing.assert_array_equal(rows["jump"], rows["distance"])
        assert (rows["jump"] > 0).all() and (abs(rows["loss_at_0"] - rows["loss_began"]) > 0).any()


def test_the_line_ends_at_the_shared_model_that_the_run_hands_out(plane: Task, regression: FederatedData) -> None:
    done = run(plane, regression, FedAvg(steps=2), rounds=3, health=[3], evaluate=3)
    evaluated = done.clients.filter(pl.col("round") == 3)["train_loss"].to_numpy()
    np.testing.assert_array_equal(done.health["loss_at_1"].to_numpy(), evaluated)
    assert far(shared(done), shared(run(plane, regression, FedAvg(steps=2), rounds=3))) == 0


@pytest.mark.parametrize(
    ("method", "jumps"),
    [
        (PFedMe(steps=2, reset=True), True),
        (METHODS["fedadmm"](steps=2, reset=True), True),  # type: ignore[call-arg]
        (FineTune(steps=2, solver=FedAvg(steps=2)), True),
        (FineTune(steps=2, after=2, solver=FedAvg(steps=2)), False),
        (FineTune(steps=0, after=2, solver=FedAvg(steps=2)), False),
        (Ditto(steps=2, after=2, solver=FedAvg(steps=2)), False),
        (Ditto(steps=2, lam=(0.1, 1.0)), False),
        (APFL(steps=2, alpha=1.0, adaptive=False), False),  # local training
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_settings_that_change_where_work_starts_change_who_jumps(
    data: FederatedData, method: Method, jumps: bool
) -> None:
    done = run(two_layers(data), data, method, rounds=4, health=[4])
    assert (done.health["jump"] > 0).all() == (done.health["jump"] > 0).any() == jumps


def test_apfl_without_mixing_is_fedavg_in_its_health_too(data: FederatedData) -> None:
    task = two_layers(data)
    mixed = run(task, data, APFL(steps=2, alpha=0.0, adaptive=False), rounds=3, health=1)
    plain = run(task, data, FedAvg(steps=2, weighted=False), rounds=3, health=1)
    np.testing.assert_allclose(mixed.health.to_numpy(), plain.health.to_numpy(), rtol=1e-12, atol=1e-14)


def test_layers_that_stay_with_the_client_do_not_jump(data: FederatedData) -> None:
    """Between the local model and the aggregate only the shared layers move, so that the jump is theirs."""
    task = two_layers(data)
    shared_all = run(task, data, FedPer(steps=2, layers=()), rounds=1, health=[1])
    as_fedavg = run(task, data, FedAvg(steps=2), rounds=1, health=[1])
    np.testing.assert_allclose(shared_all.health["jump"], as_fedavg.health["jump"], rtol=1e-12)
    kept = run(task, data, FedPer(steps=2, layers=("0", "2")), rounds=1, health=[1])
    assert (kept.health["jump"] == 0).all()


@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_running_statistics_go_along_the_line(data: FederatedData, buffers: Any) -> None:
    """At its ends a model predicts with its own statistics: at 1 as the shared model does, at 0 as one alone."""
    several = data.only([k for k in range(len(data)) if int(data.train.sizes[k]) > 1])
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
    task = Task(module, buffers=buffers)
    how: dict[str, Any] = {"rounds": 1, "health": [1], "evaluate": 1}
    done = run(task, several, FedAvg(steps=2, batch=None), **how)
    alone = run(task, several, Local(steps=2, batch=None), **how)
    last = [run.clients.filter(pl.col("round") == 1)["train_loss"].to_numpy() for run in (done, alone)]
    np.testing.assert_allclose(done.health["loss_at_1"], last[0], rtol=1e-12)
    np.testing.assert_allclose(done.health["loss_at_0"], last[1], rtol=1e-12)
    assert abs(last[0] - last[1]).max() > 1e-3


def test_attackers_have_rows_and_are_nobodys_figure(data: FederatedData) -> None:
    records: list[Any] = []
    done = run(
        two_layers(data), data, FedAvg(steps=2), rounds=2, health=[2], attacks=SignFlip(), malicious=[1, 4],
        aggregator=CoordinateMedian(), progress=records.append,
    )  # fmt: skip
    assert len(done.health) == len(data)
    (record,) = [r for r in records if type(r).__name__ == "HealthRecord"]
    assert record.clients[~record.counted].tolist() == [1, 4]


def test_fed_plus_with_lam_1_is_the_jump_of_one_model(plane: Task, regression: FederatedData) -> None:
    done = run(plane, regression, FedPlus(steps=2, lam=1.0), rounds=2, health=1)
    np.testing.assert_array_equal(done.health["jump"].to_numpy(), done.health["distance"].to_numpy())


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (0, "health = 0: it must be a whole number of rounds"),
        ([], "a list of rounds"),
        ([2, 2], "a list of rounds"),
        ([9], "the round 9 is beyond the run's 3 rounds"),
        (7, "every 7 rounds are beyond the run's 3 rounds"),
        ({"points": [0.5, 0.2]}, "numbers from 0 to 1 that rise"),
        ({"points": [0.0, 1.5]}, "numbers from 0 to 1 that rise"),
        ({"part": "tests"}, "one of"),
        ({"rounds": 1, "part": "valid"}, "no client of data .* has such examples"),
        ({"every": 3}, "every"),
        ("often", "health"),
    ],
)
def test_bad_health_is_refused_by_name(data: FederatedData, health: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        run(two_layers(data), data, FedAvg(), rounds=3, health=health)


def test_a_method_that_gives_no_whole_models_is_told(data: FederatedData) -> None:
    class Odd(FedAvg):
        def resumes(self, down: Any, state: Any, local: Any) -> Any:
            return down["w"][:, :2]

    with pytest.raises(ValueError, match=r"Odd.resumes gave .* it must give whole models"):
        run(two_layers(data), data, Odd(steps=1), rounds=1, health=1)
