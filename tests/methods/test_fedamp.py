"""FedAMP: a mean of all models for every client, in which those like its own weigh most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.context import Context
from descant.errors import SettingError
from descant.methods import FedAMP, Local, PerClient, ServerView
from descant.task import Layout
from tests.methods.runs import MINI, ROUNDS, N, Vector, cohort_of, column, deployed, far, run


def told(method: FedAMP, w: torch.Tensor) -> torch.Tensor:
    """What the server tells clients whose models are the rows of w."""
    ctx = Context(1, 0, len(w), Layout((), ()), w[0])
    leaf = method.broadcast(ServerView({"w": w}, ctx))["u"]
    assert isinstance(leaf, PerClient)
    return leaf.rows


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("alpha", [None, 0.05])
def test_it_is_algorithm_1_client_by_client(
    data: FederatedData, linear: Task, slope: Any, cohort: int, alpha: float | None
) -> None:
    lam, sigma = 0.6, 0.4
    done = run(linear, data, FedAMP(lam=lam, sigma=sigma, alpha=alpha, lr=0.3, steps=3, batch=None), cohort=cohort)
    rate = sigma / N if alpha is None else alpha
    w: list[Vector] = [linear.start().numpy() for _ in range(N)]
    weights = []
    for t in range(1, ROUNDS + 1):
        before = list(w)
        for k in cohort_of(t, cohort):
            xi = {j: rate * np.exp(-((w_j - before[k]) ** 2).sum() / sigma) / sigma for j, w_j in enumerate(before)}
            others = [j for j in range(N) if j != k]
            u = (1 - sum(xi[j] for j in others)) * before[k] + sum(xi[j] * before[j] for j in others)
            weights += [xi[j] for j in others]
            for _ in range(3):
                w[k] = w[k] - 0.3 * (slope(k, w[k]) + lam * (w[k] - u))
    assert far(deployed(done), np.stack(w)) <= 1e-10
    assert max(weights) > 3 * min(weights), "some are more alike than others"
    assert set(column(done, "bytes_up")) == set(column(done, "bytes_down")) == {cohort * 15 * 8}


def test_models_that_are_as_good_as_equal_are_averaged() -> None:
    """To first order: what is left of the differences is of their third power."""
    generator = torch.Generator().manual_seed(1)
    x, shifts = torch.randn(1, 6, generator=generator).double(), torch.randn(5, 6, generator=generator).double()
    for size in (0.0, 1e-4, 1e-3):
        w = x + size * shifts
        assert far(told(FedAMP(), w), w.mean(0).expand(5, -1)) <= 100 * size**3 + 1e-14


def test_models_far_apart_have_nothing_to_do_with_each_other() -> None:
    """A model sent by an attacker, say: who is near goes on as if it were not there."""
    w = torch.tensor([[0.0, 0.0], [0.1, 0.0], [1e6, -1e6]], dtype=torch.float64)
    u = told(FedAMP(sigma=1.0, alpha=0.3), w)
    near = 0.3 * np.exp(-0.01)
    expected = [[0.1 * near, 0.0], [0.1 * (1 - near), 0.0], [1e6, -1e6]]
    assert far(u, torch.tensor(expected, dtype=torch.float64)) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_without_a_tie_it_is_local_training(data: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    tied, alone = (run(mlp, data, method, **settings) for method in (FedAMP(lam=0.0, **MINI), Local(**MINI)))
    assert far(deployed(tied), deployed(alone)) <= 1e-12


def test_settings_that_make_no_sense_are_refused(data: FederatedData, mlp: Task) -> None:
    for field, value in {"lam": -1.0, "sigma": 0.0, "alpha": -1.0}.items():
        with pytest.raises(SettingError, match=rf"FedAMP\.{field} = {value}"):
            FedAMP(**{field: value})
    with pytest.raises(SettingError, match=r"FedAMP\.alpha = 0\.2: it must be at most sigma / 6"):
        run(mlp, data, FedAMP(alpha=0.2), rounds=1)
    run(mlp, data, FedAMP(alpha=0.16, **MINI), rounds=1)
