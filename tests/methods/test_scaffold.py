"""SCAFFOLD: control variates that cancel the drift of clients, and what they cost and need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from descant import FederatedData, Run, Task, simulate
from descant.aggregators import CoordinateMedian
from descant.errors import SettingError
from descant.methods import Adam, Ditto, FedAvg, Momentum, PowerLaw, Scaffold
from tests import held

Vector = NDArray[np.float64]
Quadratics = tuple[Vector, Vector, Vector]
WORK: dict[str, Any] = {"lr": 0.05, "steps": 10, "batch": None}


def ran(task: Task, data: FederatedData, method: Any, **settings: Any) -> Run:
    done = simulate(task, data, method, **{"rounds": 3, "mode": "vmap", "evaluate": 1000} | settings)
    assert done.collapse is None
    return done


def weights(run: Run) -> Vector:
    vector: Vector = nn.utils.parameters_to_vector(run.shared().parameters()).detach().numpy()
    return vector


@pytest.fixture(scope="module")
def optimum(quadratics: Quadratics) -> Vector:
    """Where the gradient of the plain mean of the five clients' losses vanishes."""
    H, g, _ = quadratics
    found: Vector = np.linalg.solve(H.mean(0), g.mean(0))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("option", ["I", "II"])
def test_it_reaches_the_optimum_where_fedavg_stops_short(
    plane: Task, regression: FederatedData, optimum: Vector, option: Any
) -> None:
    """Ten local steps on quadratics with different minimisers: FedAvg's fixed point is another one."""
    drifts = weights(ran(plane, regression, FedAvg(**WORK, weighted=False), rounds=40))
    reached = weights(ran(plane, regression, Scaffold(**WORK, option=option), rounds=40))
    assert np.abs(reached - optimum).max() < 1e-9
    assert np.abs(drifts - optimum).max() > 1e-2


@pytest.mark.slow
def test_with_a_few_clients_a_round_it_gets_there_as_well(
    plane: Task, regression: FederatedData, optimum: Vector
) -> None:
    reached = weights(ran(plane, regression, Scaffold(**WORK), rounds=90, cohort=2))
    drifts = weights(ran(plane, regression, FedAvg(**WORK, weighted=False), rounds=90, cohort=2))
    assert np.abs(reached - optimum).max() < 1e-6
    assert np.abs(drifts - optimum).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("option", ["I", "II"])
def test_at_the_optimum_the_control_variates_are_the_gradients_there(
    plane: Task, regression: FederatedData, quadratics: Quadratics, optimum: Vector, option: Any
) -> None:
    H, g, _ = quadratics
    run = ran(plane, regression, Scaffold(**WORK, option=option), rounds=40)
    found = held.by_clients(run)["c_k"].numpy()
    assert np.abs(found - (H @ optimum - g)).max() < 1e-8
    assert np.abs(found.sum(0)).max() < 1e-8 and np.abs(found).max() > 0.1


@pytest.mark.few(1)
@pytest.mark.parametrize("settings", [{}, {"cohort": 2}, {"cohort": 3, "stragglers": 0.6}], ids=str)
def test_c_is_the_mean_of_all_c_k_after_every_round(
    plane: Task, regression: FederatedData, settings: dict[str, Any]
) -> None:
    for rounds in (1, 2, 5):
        run = ran(plane, regression, Scaffold(lr=0.05, epochs=2, batch=7), rounds=rounds, **settings)
        c, c_k = held.by_server(run)["c"], held.by_clients(run)["c_k"]
        expected = c_k.sum(0) / len(regression)  # who took no part yet has none, and counts
        torch.testing.assert_close(c, expected, rtol=0, atol=1e-12)


def test_one_full_step_with_option_1_is_fedavg(plane: Task, regression: FederatedData) -> None:
    """Everyone corrects by c - c_k, and the corrections sum to zero."""
    work: dict[str, Any] = {"lr": 0.05, "steps": 1, "batch": None}
    one = weights(ran(plane, regression, Scaffold(**work, option="I")))
    other = weights(ran(plane, regression, FedAvg(**work, weighted=False)))
    assert np.abs(one - other).max() < 1e-12


@pytest.mark.parametrize(("option", "gradients"), [("I", 11), ("II", 10)])
def test_the_bill(plane: Task, regression: FederatedData, option: Any, gradients: int) -> None:
    """Control variates travel both ways; option I takes a gradient on all local data more."""
    run = ran(plane, regression, Scaffold(**WORK, option=option), cohort=3)
    for row in run.history.rounds:
        assert row["bytes_up"] == row["bytes_down"] == 3 * 2 * 8 * plane.dim
        assert row["gradients"] == 3 * gradients


def test_a_rate_by_round_is_divided_by(plane: Task, regression: FederatedData) -> None:
    """c_k is a mean of gradients whatever the rate is: with one step, that at w."""
    rate = PowerLaw(scale=0.05, power=-0.5)
    one, two = (
        weights(ran(plane, regression, Scaffold(lr=rate, steps=1, batch=None, option=option), rounds=5, cohort=2))
        for option in ("I", "II")
    )
    assert np.abs(one - two).max() < 1e-12


@pytest.mark.parametrize("field", [{"momentum": 0.5}, {"optimizer": Momentum()}, {"optimizer": Adam()}], ids=str)
def test_moves_that_are_no_plain_steps_are_refused_where_c_k_is_read_off_them(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(
        SettingError, match=rf"Scaffold\.{name} = .*with option 'II', which reads c_k off the moves"
    ):
        Scaffold(**field)
    Scaffold(option="I", **field)


@pytest.mark.parametrize("method", [Scaffold(), Ditto(solver=Scaffold())], ids=lambda m: m.name)
def test_who_does_not_send_may_not_train(plane: Task, regression: FederatedData, method: Any) -> None:
    with pytest.raises(SettingError, match=r"trainers: not with the method .*must agree on c_k"):
        ran(plane, regression, method, cohort=2, trainers="everyone")


def test_option_1_leaves_running_statistics_as_training_left_them(federation_of_pairs: FederatedData) -> None:
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    one, two = (
        ran(task, federation_of_pairs, Scaffold(lr=1e-9, steps=2, batch=None, option=option), rounds=1).shared()
        for option in ("I", "II")
    )
    torch.testing.assert_close(one[1].running_mean, two[1].running_mean, rtol=0, atol=1e-7)


@pytest.fixture(scope="module")
def federation_of_pairs() -> FederatedData:
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (4, 6, 8)]
    return FederatedData.from_arrays([{"train": (X, X[:, :3].argmax(1))} for X in parts], classes=3)


def test_a_median_takes_the_place_of_both_means(plane: Task, regression: FederatedData) -> None:
    run = ran(plane, regression, Scaffold(**WORK), rounds=1, aggregator=CoordinateMedian())
    c, c_k = held.by_server(run)["c"], held.by_clients(run)["c_k"]
    torch.testing.assert_close(c, c_k.median(0).values, rtol=0, atol=1e-9)
