"""L2SGD and MR-MTL: models that are pulled towards their mean, by coin flips or in every step.

What L2SGD sends and hears is tested with the contract (tests/engine/test_toys_methods.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.aggregators import CoordinateMedian
from descant.attacks import SignFlip
from descant.draws import uniform
from descant.errors import SettingError
from descant.methods import L2SGD, MRMTL, Local, PowerLaw
from tests.methods.runs import MINI, ROUNDS, SEED, N, Vector, cohort_of, column, deployed, far, run, shared


def stationary(quadratics: tuple[Vector, Vector, Vector], lam: float) -> Vector:
    """Where H_k x_k - g_k + lam (x_k - mean of all x) is zero for each k: [N, d]."""
    H, g, _ = quadratics
    N, d = g.shape
    system = np.zeros((N, d, N, d))
    for k in range(N):
        system[k, :, k] += H[k] + lam * np.eye(d)
        for j in range(N):
            system[k, :, j] -= lam / N * np.eye(d)
    return np.linalg.solve(system.reshape(N * d, N * d), g.ravel()).reshape(N, d)


@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("scheduled", [False, True], ids=["constant", "by round"])
def test_l2sgd_is_the_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, cohort: int, scheduled: bool
) -> None:
    lr = PowerLaw(scale=0.3, power=-0.5) if scheduled else 0.3
    done = run(linear, data, L2SGD(p=0.4, lam=0.7, lr=lr, batch=None, steps=2), cohort=cohort, rounds=12)
    x, talks = [linear.start().numpy() for _ in range(N)], 0
    for t in range(1, 13):
        chosen = cohort_of(t, cohort)
        eta = lr.at(t) if isinstance(lr, PowerLaw) else lr
        if float(uniform(SEED, "coin", t)) < 0.4:
            mean, talks = np.mean([x[k] for k in chosen], axis=0), talks + 1
            for k in chosen:
                x[k] = x[k] - eta * 0.7 / 0.4 * (x[k] - mean)
        else:
            for k in chosen:
                for _ in range(2):
                    x[k] = x[k] - eta / 0.6 * slope(k, x[k])
    assert far(deployed(done), np.stack(x)) <= 1e-10
    assert 2 < talks < 10
    assert sum(column(done, "bytes_up")) == sum(column(done, "bytes_down")) == talks * cohort * 15 * 8


@pytest.mark.parametrize("lam", [0.0, 0.8, 5.0])
def test_at_the_minimum_the_expected_step_of_l2sgd_is_zero(
    quadratics: tuple[Vector, Vector, Vector], lam: float
) -> None:
    """Each of its two moves, times its probability, by the method's own functions: they cancel."""
    H, g, _ = (torch.from_numpy(part) for part in quadratics)
    x = torch.from_numpy(stationary(quadratics, lam))
    method = L2SGD(p=0.3, lam=lam, lr=0.1)
    gradients = torch.einsum("kij,kj->ki", H, x) - g
    local = method.step(x, lambda x: gradients).x - x
    there: Any = type("View", (), {"round": 1})()
    pulled = method.hear({"mean": x.mean(0)}, {"x": x}, there)["x"] - x
    assert far(0.7 * local + 0.3 * pulled, torch.zeros_like(x)) <= 1e-12
    assert float(local.abs().max()) > 1e-3 or lam == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("codec", ["float16", "top-k"])
def test_l2sgd_with_a_codec_and_a_median_against_flipped_signs(data: FederatedData, mlp: Task, codec: str) -> None:
    """What it sends is a position: codecs and attacks work on how it moved since the last message."""
    flips: dict[str, Any] = {"attacks": [SignFlip(tau=1.0, on="update")], "malicious": [0, 3]}
    method = L2SGD(p=0.5, **MINI)
    plain = run(mlp, data, method, rounds=12, codec=codec)
    attacked = run(mlp, data, method, rounds=12, codec=codec, aggregator=CoordinateMedian(), **flips)
    assert sum(column(plain, "bytes_up")) < sum(column(run(mlp, data, method, rounds=12), "bytes_up"))
    assert 1e-6 < far(deployed(attacked), deployed(plain)) < 2.0


@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("guards", [{}, {"clip": 0.3, "weight_decay": 0.05}], ids=str)
def test_mr_mtl_is_the_loop_over_clients(
    data: FederatedData, linear: Task, slope: Any, cohort: int, guards: dict[str, float]
) -> None:
    done = run(linear, data, MRMTL(lam=0.6, lr=0.2, steps=3, batch=None, **guards), cohort=cohort)
    w = linear.start().numpy()
    v = [w for _ in range(N)]
    for t in range(1, ROUNDS + 1):
        chosen = cohort_of(t, cohort)
        for k in chosen:
            for _ in range(3):
                g = slope(k, v[k])
                g = g * min(1.0, 0.3 / np.sqrt(g @ g)) + 0.05 * v[k] if guards else g
                v[k] = v[k] - 0.2 * (g + 0.6 * (v[k] - w))
        w = w + cohort / N * np.mean([v[k] - w for k in chosen], axis=0)
    assert far(shared(done), w) <= 1e-10
    assert far(deployed(done), np.stack(v)) <= 1e-10
    assert set(column(done, "bytes_up")) == set(column(done, "bytes_down")) == {cohort * 15 * 8}


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_mr_mtl_with_lambda_0_is_local_training(data: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    tied, alone = (run(mlp, data, method, **settings) for method in (MRMTL(lam=0.0, **MINI), Local(**MINI)))
    assert far(deployed(tied), deployed(alone)) <= 1e-12


@pytest.mark.slow
def test_mr_mtl_reaches_the_minimum_of_its_objective(
    regression: FederatedData, plane: Task, quadratics: tuple[Vector, Vector, Vector]
) -> None:
    method = MRMTL(lam=0.8, lr=0.3, steps=12, batch=None)
    done = run(plane, regression, method, rounds=40)
    assert far(deployed(done, clients=5), stationary(quadratics, 0.8)) <= 1e-8
    assert far(shared(done), stationary(quadratics, 0.8).mean(0)) <= 1e-8


def test_settings_that_make_no_sense_are_refused() -> None:
    for p in (0.0, 1.0, float("nan")):
        with pytest.raises(SettingError, match=r"L2SGD\.p = .*: it must be between 0 and 1"):
            L2SGD(p=p)
    for kind in (L2SGD, MRMTL):
        with pytest.raises(SettingError, match=rf"{kind.__name__}\.lam = -1\.0: it must be zero or more"):
            kind(lam=-1.0)
