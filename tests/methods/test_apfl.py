"""APFL: the mixture of a local and the global model, and the proportion that a client learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from descant import FederatedData, Task
from descant.errors import SettingError
from descant.methods import APFL, FedAvg, Local, PowerLaw
from tests.methods.runs import MINI, ROUNDS, N, cohort_of, column, deployed, far, run, shared

FULL: dict[str, Any] = {"lr": 0.3, "steps": 3, "batch": None}


@pytest.mark.few(2)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("scheduled", [False, True], ids=["constant", "by round"])
def test_it_is_algorithm_1_client_by_client(
    data: FederatedData, linear: Task, slope: Any, adaptive: bool, weighted: bool, cohort: int, scheduled: bool
) -> None:
    lr = PowerLaw(scale=0.3, power=-0.5) if scheduled else 0.3
    method = APFL(alpha=0.4, adaptive=adaptive, weighted=weighted, **FULL | {"lr": lr})
    done = run(linear, data, method, cohort=cohort)
    w, sizes = linear.start().numpy(), data.train.sizes.tolist()
    v, alpha = [w for _ in sizes], [0.4] * N
    for t in range(1, ROUNDS + 1):
        eta = lr.at(t) if isinstance(lr, PowerLaw) else lr
        chosen = cohort_of(t, cohort)
        n = {k: sizes[k] if weighted else 1 for k in chosen}
        update = np.zeros_like(w)
        for k in chosen:
            x = w
            if adaptive:
                gradient = slope(k, alpha[k] * v[k] + (1 - alpha[k]) * x)
                alpha[k] = min(1.0, max(0.0, alpha[k] - eta * float((v[k] - x) @ gradient)))
            for _ in range(3):
                g, mixed = slope(k, x), slope(k, alpha[k] * v[k] + (1 - alpha[k]) * x)
                x, v[k] = x - eta * g, v[k] - eta * alpha[k] * mixed
            update += n[k] / sum(n.values()) * (x - w)
        w = w + update
        assert done.history.rounds[t - 1]["alpha"] == pytest.approx(sum(alpha[k] for k in chosen), abs=1e-10)
    assert far(shared(done), w) <= 1e-10
    expected = np.stack([a * x + (1 - a) * w for a, x in zip(alpha, v, strict=True)])
    assert far(deployed(done), expected) <= 1e-10
    assert (max(alpha) - min(alpha) > 1e-2) == adaptive
    assert done.history.rounds[0]["gradients"] == cohort * (3 * 2 + adaptive)
    assert set(column(done, "bytes_up")) == {cohort * (15 * 8 + 4 * weighted)}
    assert set(column(done, "bytes_down")) == {cohort * 15 * 8}


@pytest.mark.slow
def test_proportions_stay_between_0_and_1(data: FederatedData, linear: Task) -> None:
    """At a rate that drives them to the ends."""
    method = APFL(alpha=0.9, **FULL | {"lr": 3.0})
    sums = [row["alpha"] for row in run(linear, data, method, cohort=1, rounds=30).history.rounds]
    assert min(sums) >= 0 and max(sums) == 1.0


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_with_alpha_1_it_is_local_training(data: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    mixed = run(mlp, data, APFL(alpha=1.0, adaptive=False, **FULL), **settings)
    assert far(deployed(mixed), deployed(run(mlp, data, Local(**FULL), **settings))) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_with_alpha_0_it_is_the_global_model(data: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    mixed = run(mlp, data, APFL(alpha=0.0, adaptive=False, **MINI), **settings)
    plain = shared(run(mlp, data, FedAvg(weighted=False, **MINI), **settings))
    assert far(deployed(mixed), plain.expand(N, -1)) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.9}])
def test_its_global_model_is_fedavgs_whatever_the_proportions(
    data: FederatedData, mlp: Task, optimizer: dict[str, Any]
) -> None:
    """Minibatches, stragglers, weights and momentum included."""
    settings: dict[str, Any] = {"cohort": 4, "stragglers": 0.5}
    mixed = run(mlp, data, APFL(weighted=True, **MINI, **optimizer), **settings)
    plain = run(mlp, data, FedAvg(**MINI, **optimizer), **settings)
    assert far(shared(mixed), shared(plain)) <= 1e-12


def test_running_statistics_are_refused(data: FederatedData) -> None:
    several = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4)], classes=3)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    with pytest.raises(
        SettingError, match=r"model: it keeps running statistics.*'apfl' cannot train it.*GroupNorm"
    ):
        run(task, several, APFL(**FULL), rounds=1)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_a_proportion_lies_between_0_and_1(alpha: float) -> None:
    with pytest.raises(SettingError, match=r"APFL\.alpha = .*: it must be from 0 to 1"):
        APFL(alpha=alpha)
