"""q-FFL, TERM and AFL: their limits, where they end, and what they do for the client that is served worst."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn

from descant import FederatedData, Run, Task, simulate
from descant.aggregators import CenteredClipping, CoordinateMedian, GeometricMedian, Mean
from descant.attacks import SignFlip
from descant.context import Context
from descant.mail import Mail
from descant.methods import AFL, QFFL, TERM, Ditto, FedAvg, Method, ServerView, Tree
from tests import held

Vector = NDArray[np.float64]
Quadratics = tuple[Vector, Vector, Vector]
MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
STEP: dict[str, Any] = {"lr": 0.2, "steps": 1, "batch": None}  # a gradient step a round


def ran(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    done = simulate(task, data, method, **{"rounds": 4, "mode": "vmap", "evaluate": 1000} | settings)
    assert done.collapse is None
    return done


def weights(run: Run) -> Vector:
    vector: Vector = nn.utils.parameters_to_vector(run.shared().parameters()).detach().numpy()
    return vector


def losses(data: FederatedData, w: Vector) -> Vector:
    """f_k(w) of every client of `regression`."""
    parts = [data.train.client(k) for k in range(len(data))]
    return np.array([float(((A.numpy() @ w - b.numpy()) ** 2).mean()) for A, b in parts])


def apart(a: Run, b: Run) -> float:
    return float(np.abs(weights(a) - weights(b)).max())


# q-FFL


@pytest.mark.few(1)
@pytest.mark.parametrize("L", [None, 3.0])
@pytest.mark.parametrize("settings", [{}, {"cohort": 3, "stragglers": 0.5}], ids=str)
def test_q_0_is_fedavg_with_the_plain_average(
    data: FederatedData, linear: Task, L: float | None, settings: dict[str, Any]
) -> None:
    one = ran(linear, data, QFFL(**MINI, q=0.0, L=L), **settings)
    assert apart(one, ran(linear, data, FedAvg(**MINI, weighted=False), **settings)) <= 1e-12
    assert apart(one, ran(linear, data, FedAvg(**MINI), **settings)) > 1e-3, "by n_k it is another"


def test_one_full_step_is_q_fedsgd(plane: Task, regression: FederatedData, quadratics: Quadratics) -> None:
    """Algorithm 1: w - sum_k F_k^q g_k / sum_k (q F_k^(q-1) |g_k|^2 + L F_k^q), whatever the local rate is."""
    (H, g, _), q = quadratics, 2.0
    w = plane.start().numpy()
    for _ in range(3):
        F, slope = losses(regression, w), H @ w - g
        w = w - F**q @ slope / (q * F ** (q - 1) * (slope**2).sum(1) + F**q / 0.2).sum()
    assert np.abs(weights(ran(plane, regression, QFFL(**STEP, q=q), rounds=3)) - w).max() <= 1e-10


@pytest.mark.slow
def test_a_larger_q_serves_the_worst_client_better(plane: Task, regression: FederatedData) -> None:
    found = [losses(regression, weights(ran(plane, regression, QFFL(**STEP, q=q), rounds=60))) for q in (0, 1, 5)]
    assert found[0].max() > found[1].max() > found[2].max()
    assert found[0].std() > found[1].std() > found[2].std()
    assert found[0].mean() < found[1].mean() < found[2].mean(), "which the mean pays for"


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.5, 1.0])
def test_at_the_end_the_gradient_of_the_objective_vanishes(
    plane: Task, regression: FederatedData, quadratics: Quadratics, q: float
) -> None:
    H, g, _ = quadratics
    w = weights(ran(plane, regression, QFFL(**STEP, q=q), rounds=100))
    assert np.abs(losses(regression, w) ** q @ (H @ w - g)).max() < 1e-7


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_a_client_without_a_loss_has_no_weight(q: float) -> None:
    """Its message is finite, and where everyone's loss is 0 nothing moves."""
    task = Task(nn.Linear(2, 1, bias=False).double(), loss="squared_error")
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()
    fits = X @ task.start()[:, None]
    easy = FederatedData.from_arrays([{"train": (X, fits)}] * 2)
    mixed = FederatedData.from_arrays([{"train": (X, fits)}, {"train": (X, fits + 1)}])
    alone = FederatedData.from_arrays([{"train": (X, fits + 1)}])
    method = QFFL(**STEP, q=q)
    still = ran(task, easy, method, rounds=1)
    assert still.history.rounds[0]["received"] == 2 and np.array_equal(weights(still), task.start().numpy())
    assert apart(ran(task, mixed, method, rounds=1), ran(task, alone, method, rounds=1)) <= 1e-12


def server_of(method: Method, w: Tensor, leaves: dict[str, Tensor], clients: Tensor, **held: Tensor) -> Tree:
    """The server's next state under the mean, after messages of `clients` of a federation of five."""
    ctx = Context(1, 0, 5, Task(nn.Linear(len(w), 1, bias=False)).layout, w)
    return method.server(ServerView({"w": w, **held}, ctx), Mail.of(leaves, clients, ctx), Mean())


def test_a_number_h_that_no_honest_client_sends_has_no_weight() -> None:
    w, delta = torch.zeros(3).double(), torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double()
    forged = {"delta": delta, "h": torch.tensor([2.0, -5.0, 0.0]).double()}
    found = server_of(QFFL(), w, forged, torch.arange(3))["w"]
    torch.testing.assert_close(found, -delta[0] / 2)


# TERM


@pytest.mark.few(1)
@pytest.mark.parametrize("weighted", [True, False])
def test_t_0_is_fedavg_and_a_small_t_is_near_it(data: FederatedData, linear: Task, weighted: bool) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": 0.4}
    plain = ran(linear, data, FedAvg(**MINI, weighted=weighted), **settings)
    tilted = (TERM(**MINI, t=t, weighted=weighted) for t in (0.0, 1e-4, 1e-3))
    away = [apart(ran(linear, data, method, **settings), plain) for method in tilted]
    assert away[0] <= 1e-13
    assert 0 < away[1] < 1e-3 and away[2] == pytest.approx(10 * away[1], rel=1e-2), "in proportion to t"


@pytest.mark.parametrize("weighted", [True, False])
def test_a_large_t_is_the_worst_client_alone(data: FederatedData, linear: Task, weighted: bool) -> None:
    work: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": None}
    parts = [data.train.client(k) for k in range(len(data))]
    module = linear.module(linear.start())
    worst = int(np.argmax([float(nn.functional.cross_entropy(module(X), y).detach()) for X, y in parts]))
    alone = FederatedData.from_arrays([{"train": parts[worst]}], classes=3)
    tilted = ran(linear, data, TERM(**work, t=1e4, weighted=weighted), rounds=1)
    assert apart(tilted, ran(linear, alone, FedAvg(**work), rounds=1)) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("t", "lr"), [(0.5, 0.1), (2.0, 0.05)])
def test_at_the_end_the_tilted_gradient_vanishes(
    plane: Task, regression: FederatedData, quadratics: Quadratics, t: float, lr: float
) -> None:
    """Gradient steps on 1/t log sum_k n_k/n exp(t f_k), whose gradient is sum_k p_k grad f_k."""
    H, g, n = quadratics
    w = weights(ran(plane, regression, TERM(lr=lr, steps=1, batch=None, t=t), rounds=250))
    p = n * np.exp(t * losses(regression, w))
    assert np.abs((p / p.sum()) @ (H @ w - g)).max() < 1e-8

    def objective(x: Vector) -> float:
        return float(np.log(n / n.sum() @ np.exp(t * losses(regression, x))) / t)

    assert objective(w) <= minimize(objective, w + 0.1, method="BFGS").fun + 1e-9


@pytest.mark.slow
def test_a_larger_t_serves_the_worst_client_better(plane: Task, regression: FederatedData) -> None:
    tilted = (TERM(lr=0.05, steps=1, batch=None, t=t) for t in (0.0, 0.5, 2.0))
    worst = [losses(regression, weights(ran(plane, regression, term, rounds=80))).max() for term in tilted]
    assert worst[0] > worst[1] > worst[2]


# AFL


@pytest.mark.few(1)
@pytest.mark.parametrize("draw", ["uniform", "mixture"])
@pytest.mark.parametrize("gamma", [0.02, 0.5])
def test_the_mixture_stays_on_the_simplex(data: FederatedData, linear: Task, draw: Any, gamma: float) -> None:
    for rounds in (1, 2, 6):
        run = ran(linear, data, AFL(**MINI, gamma=gamma, draw=draw), rounds=rounds, cohort=3)
        mixture = held.by_server(run)["mixture"]
        assert len(mixture) == 7 and float(mixture.min()) >= 0 and abs(float(mixture.sum()) - 1) <= 1e-12
        assert float(mixture.std()) > 0


def test_without_an_ascent_and_with_everyone_it_is_fedavg(data: FederatedData, linear: Task) -> None:
    one = ran(linear, data, AFL(**MINI, gamma=0.0))
    assert apart(one, ran(linear, data, FedAvg(**MINI, weighted=False))) <= 1e-12


@pytest.mark.slow
def test_it_finds_the_model_whose_worst_client_is_served_best(
    plane: Task, regression: FederatedData, quadratics: Quadratics
) -> None:
    """What the best model for a mixture costs that mixture bounds what any model costs its worst client."""
    (H, g, _), run = quadratics, ran(plane, regression, AFL(**STEP, gamma=0.02), rounds=150)
    found = losses(regression, weights(run))
    mixture = held.by_server(run)["mixture"].numpy()
    of_mixture = np.linalg.solve(np.tensordot(mixture, H, 1), mixture @ g)
    bound = float(mixture @ losses(regression, of_mixture))
    assert bound - 1e-9 <= found.max() <= 1.001 * bound
    average = losses(regression, weights(ran(plane, regression, FedAvg(**STEP, weighted=False), rounds=40)))
    assert average.max() > 1.1 * bound and average.mean() < found.mean()


def test_moves_of_uniform_cohorts_are_unbiased() -> None:
    """The mean over all cohorts of two of five is the move of everyone, sum_k lambda_k delta_k."""
    generator = torch.Generator().manual_seed(4)
    w, delta = torch.zeros(3).double(), torch.randn(5, 3, generator=generator).double()
    mixture, risk = torch.tensor([0.5, 0.2, 0.0, 0.3, 0.0]).double(), torch.ones(5).double()

    def moved(who: list[int]) -> Tensor:
        at = torch.tensor(who)
        return server_of(AFL(), w, {"delta": delta[at], "risk": risk[at]}, at, mixture=mixture)["w"]

    pairs = torch.stack([moved([*pair]) for pair in combinations(range(5), 2)])
    assert bool((pairs[-2] == 0).all()), "clients 2 and 4 have no weight"
    torch.testing.assert_close(pairs.mean(0), mixture @ delta)
    torch.testing.assert_close(moved([*range(5)]), mixture @ delta)


# What they have in common


EACH = [QFFL(**MINI, q=0.5), TERM(**MINI, t=0.5), AFL(**MINI, gamma=0.02)]
FAIR = pytest.mark.parametrize("method", EACH, ids=lambda m: m.name)


@FAIR
def test_every_number_beside_the_update_is_on_the_bill(data: FederatedData, linear: Task, method: Method) -> None:
    numbers = 8 * linear.dim + 8 + (4 if isinstance(method, TERM) else 0)  # h_k or f_k, and TERM's n_k
    for row in ran(linear, data, method, cohort=3).history.rounds:
        assert row["bytes_up"] == 3 * numbers and row["bytes_down"] == 3 * 8 * linear.dim
        assert row["scored"] > 0, "the loss is paid for"


@pytest.mark.few(1)
@FAIR
@pytest.mark.parametrize(
    "aggregator",
    [CoordinateMedian(), GeometricMedian(), CenteredClipping(tau=0.5)],
    ids=lambda a: a.name,
)
def test_robust_means_hold_where_the_plain_one_is_thrown_far(
    data: FederatedData, linear: Task, method: Method, aggregator: Any
) -> None:
    """As long as attackers have less than half of the weight, which grows with their losses."""
    how: dict[str, Any] = {"attacks": [SignFlip(tau=1e3, on="update")], "malicious": [1, 5], "rounds": 3}
    robust = ran(linear, data, Ditto(solver=method, **MINI), aggregator=aggregator, **how)
    assert np.abs(weights(robust)).max() < 10 < np.abs(weights(ran(linear, data, method, **how))).max()
