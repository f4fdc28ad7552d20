"""FedMGDA+: the shortest mixture is found and certified, and it helps every client."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor, nn

from descant import FederatedData, Run, Task, simulate
from descant.aggregators import CoordinateMedian
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, FedMGDA, Method, PowerLaw
from descant.methods.simplex import shortest_mixture

GRADIENT: dict[str, Any] = {"lr": 1e-3, "steps": 1, "batch": None}


def ran(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    done = simulate(task, data, method, **{"rounds": 3, "mode": "vmap"} | settings)
    assert done.collapse is None
    return done


def weights(run: Run) -> Tensor:
    return nn.utils.parameters_to_vector(run.shared().parameters()).detach()


def units(senders: int, dim: int, seed: int, lean: float = 0.0) -> Tensor:
    """Unit vectors [S, d]; those that `lean` share a direction."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(senders, dim, generator=generator, dtype=torch.float64)
    vectors[:, 0] = vectors[:, 0].abs() + lean if lean else vectors[:, 0]
    return vectors / vectors.norm(dim=1, keepdim=True)


CASE = {
    "senders": st.integers(1, 9),
    "dim": st.integers(1, 12),
    "seed": st.integers(0, 10**6),
}


def bounds(senders: int, seed: int, epsilon: float) -> tuple[Tensor, Tensor]:
    n = torch.rand(senders, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    p = n / n.sum()
    return (p - epsilon).clamp(min=0), (p + epsilon).clamp(max=1)


@given(**CASE, epsilon=st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0]))
def test_the_mixture_is_feasible_and_certified(senders: int, dim: int, seed: int, epsilon: float) -> None:
    """The gap bounds what is left to gain: no feasible mixture is shorter by more than that."""
    g, (low, high) = units(senders, dim, seed), bounds(senders, seed, epsilon)
    found = shortest_mixture(g @ g.T, low, high, 1e-12, 1000)
    assert float((low - found.weights).max()) <= 1e-12 and float((found.weights - high).max()) <= 1e-12
    assert abs(float(found.weights.sum()) - 1) <= 1e-12
    assert 0 <= found.gap <= 1e-12 and found.iterations < 100


@pytest.mark.parametrize("epsilon", [0.005, 0.1, 1.0])
def test_a_hundred_clients_are_mixed_as_far_as_rounding_allows(epsilon: float) -> None:
    g, p = units(100, 300, 2), torch.full((100,), 0.01).double()
    found = shortest_mixture(g @ g.T, (p - epsilon).clamp(min=0), (p + epsilon).clamp(max=1), 1e-15, 1000)
    assert found.gap <= (1e-14 if epsilon == 1 else 1e-10) and 10 < found.iterations < 500


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_no_other_solver_finds_a_shorter_one(seed: int, epsilon: float) -> None:
    g, (low, high) = units(6, 8, seed), bounds(6, seed, epsilon)
    found = shortest_mixture(g @ g.T, low, high, 1e-12, 1000).weights.numpy()
    G = (g @ g.T).numpy()
    box = list(zip(low.tolist(), high.tolist(), strict=True))
    sums = {"type": "eq", "fun": lambda x: x.sum() - 1}
    options = {"ftol": 1e-14, "maxiter": 500}
    how: dict[str, Any] = {"bounds": box, "constraints": sums, "method": "SLSQP", "options": options}
    other = minimize(lambda x: x @ G @ x, np.full(6, 1 / 6), jac=lambda x: 2 * G @ x, **how)
    assert other.success
    assert found @ G @ found <= other.fun + 1e-12
    assert np.abs(found @ g.numpy() - other.x @ g.numpy()).max() < 1e-5


@given(**CASE)
def test_the_direction_helps_everyone_or_there_is_none(senders: int, dim: int, seed: int) -> None:
    """<g_k, d> >= |d|^2 for all k. Where d is 0, a mixture of the g_k is, and no direction helps all of them."""
    g = units(senders, dim, seed)
    low, high = torch.zeros(senders).double(), torch.ones(senders).double()
    d = shortest_mixture(g @ g.T, low, high, 1e-12, 1000).weights @ g
    assert float((g @ d).min()) >= float(d @ d) - 1e-10


@given(**CASE, lean=st.floats(0.05, 2.0))
def test_where_a_direction_helps_everyone_one_is_found(senders: int, dim: int, seed: int, lean: float) -> None:
    g = units(senders, dim, seed, lean)  # all gain from the first axis
    low, high = torch.zeros(senders).double(), torch.ones(senders).double()
    d = shortest_mixture(g @ g.T, low, high, 1e-12, 1000).weights @ g
    assert float((g @ d).min()) > 0
    assert float(d.norm()) >= float(g[:, 0].min()) - 1e-12, "no shorter than what the axis promises"


@pytest.mark.parametrize(
    ("rows", "length"),
    [
        ([[1.0, 0.0], [-1.0, 0.0]], 0.0),  # opposed
        ([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], 1.0),  # the same
        ([[1.0, 0.0], [0.0, 1.0]], 0.5**0.5),
        ([[1.0, 0.0], [0.0, 0.0]], 0.0),  # one that has nothing to say
        ([[0.6, 0.8], [0.6, -0.8], [1.0, 0.0]], 0.6),
        ([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]], 0.0),  # around the origin
    ],
    ids=str,
)
def test_cases_that_can_be_drawn(rows: list[list[float]], length: float) -> None:
    g = torch.tensor(rows, dtype=torch.float64)
    found = shortest_mixture(g @ g.T, torch.zeros(len(g)), torch.ones(len(g)), 1e-12, 1000)
    assert float((found.weights @ g).norm()) == pytest.approx(length, abs=1e-9) and found.gap <= 1e-12


def test_the_gap_tells_how_far_it_is_when_it_is_stopped() -> None:
    g = units(30, 40, 1)
    low, high = torch.zeros(30).double(), torch.ones(30).double()
    best = shortest_mixture(g @ g.T, low, high, 1e-12, 1000)
    least = float((best.weights @ g).square().sum())
    gaps = []
    for cap in (1, 5, 10):
        early = shortest_mixture(g @ g.T, low, high, 1e-12, cap)
        gaps.append(early.gap)
        assert early.iterations == cap
        assert float((early.weights @ g).square().sum()) - least <= 2 * early.gap
    assert gaps[0] > gaps[-1] > best.gap


def test_epsilon_0_is_fedavg_with_normalised_updates(data: FederatedData, linear: Task) -> None:
    """Of full-batch steps from w, one client at a time: their unit updates, by numbers of examples."""
    work: dict[str, Any] = {"lr": 0.2, "steps": 3, "batch": None}
    w, move = linear.start(), torch.zeros(linear.dim).double()
    sizes = data.train.sizes.double()
    for k in range(len(data)):
        alone = FederatedData.from_arrays([{"train": data.train.client(k)}], classes=3)
        update = weights(ran(linear, alone, FedAvg(**work), rounds=1)) - w
        move += sizes[k] / sizes.sum() * update / update.norm()
    run = ran(linear, data, FedMGDA(**work, epsilon=0.0, server_lr=0.3), rounds=1)
    torch.testing.assert_close(weights(run), w + 0.3 * move, rtol=0, atol=1e-10)


def test_every_client_gains_in_every_round(data: FederatedData, linear: Task) -> None:
    """Short steps along a common descent direction; the plain mean of gradients costs somebody something."""

    def train_losses(method: Method) -> list[Any]:
        run = ran(linear, data, method, rounds=8, evaluate=1)
        return [run.history.evaluated["personal"][t]["train_loss"] for t in range(9)]

    fair = train_losses(FedMGDA(**GRADIENT, epsilon=1.0, server_lr=0.02))
    plain = train_losses(FedAvg(lr=0.3, steps=1, batch=None))
    assert all((after < before).all() for before, after in pairwise(fair))
    assert any((after > before).any() for before, after in pairwise(plain))


def test_clients_that_want_the_opposite_stay_where_they_are() -> None:
    """Two points on a line, and w between them: a Pareto-stationary point."""
    task = Task(nn.Linear(1, 1, bias=False).double(), loss="squared_error")
    one = torch.ones(1, 1).double()
    w = float(task.start())
    data = FederatedData.from_arrays([{"train": (one, one * (w - 1))}, {"train": (one, one * (w + 2))}])
    found = weights(ran(task, data, FedMGDA(**GRADIENT, epsilon=1.0), rounds=3))
    assert abs(float(found) - w) <= 1e-12


def test_a_client_that_wants_nothing_has_an_update_of_no_direction() -> None:
    """With epsilon = 1 nobody may move away from its optimum; with less, the other one is followed in part."""
    task = Task(nn.Linear(1, 1, bias=False).double(), loss="squared_error")
    one = torch.ones(1, 1).double()
    w = float(task.start())
    data = FederatedData.from_arrays([{"train": (one, one * w)}, {"train": (one, one * (w + 2))}])
    work: dict[str, Any] = {"lr": 0.1, "steps": 1, "batch": None, "server_lr": 0.5}
    for epsilon, move in ((1.0, 0.0), (0.2, 0.5 * 0.3), (0.0, 0.5 * 0.5)):
        found = weights(ran(task, data, FedMGDA(**work, epsilon=epsilon), rounds=1))
        assert float(found) - w == pytest.approx(move, abs=1e-12)


def test_the_gap_is_reported_and_the_bill_is_fedavgs(data: FederatedData, linear: Task) -> None:
    run, plain = (ran(linear, data, method, cohort=4) for method in (FedMGDA(steps=2), FedAvg(steps=2)))
    assert run.rounds["mixture_gap"].max() <= 1e-12 and run.rounds["mixture_iterations"].min() >= 1
    for name in ("bytes_up", "bytes_down"):
        assert run.rounds[name].to_list() == plain.rounds[name].to_list()
    bare = ran(linear, data, FedMGDA(steps=2, weighted=False), cohort=4)
    assert set(bare.rounds["bytes_up"]) == {4 * 8 * linear.dim}


def test_moves_are_as_long_as_the_rate_of_the_round_allows(data: FederatedData, linear: Task) -> None:
    at = [weights(ran(linear, data, FedMGDA(steps=1, server_lr=PowerLaw(scale=0.1)), rounds=t)) for t in (1, 2, 3)]
    moves = [float((b - a).norm()) for a, b in zip([linear.start(), *at], at, strict=False)]
    assert all(0 < move <= 0.1 / t + 1e-12 for t, move in enumerate(moves, start=1))


@pytest.mark.parametrize("method", [FedMGDA(), Ditto(solver=FedMGDA())], ids=lambda m: m.name)
def test_another_aggregator_is_refused(data: FederatedData, linear: Task, method: Method) -> None:
    with pytest.raises(SettingError, match=r"aggregator: not with the method .*it weighs messages itself"):
        ran(linear, data, method, aggregator=CoordinateMedian())
