"""MAPPER: the mixture of a local and the global model, in a proportion that a client chooses on validation data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from descant import FederatedData, Task
from descant.errors import SettingError, TaskError
from descant.methods import MAPPER, FedAvg, Local
from tests.methods.runs import ROUNDS, N, cohort_of, column, deployed, far, run, shared

FULL: dict[str, Any] = {"lr": 0.3, "steps": 3, "batch": None}
MINI: dict[str, Any] = {"lr": 0.1, "steps": 4, "batch": 3}
GRID = (0.0, 0.3, 0.7, 1.0)
WITHOUT = (2, 5)  # clients that have no validation data


@pytest.fixture(scope="module")
def halved(data: FederatedData) -> FederatedData:
    """The clients of `data`, with validation and test examples of their own labelling, but for two of them."""
    generator = torch.Generator().manual_seed(3)
    clients = []
    for k in range(N):
        X, y = data.train.client(k)
        other = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        W = torch.linalg.lstsq(X, nn.functional.one_hot(y, 3).double()).solution
        labels = (other @ W).argmax(1)
        parts = {"train": (X, y), "test": (other[3:], labels[3:])}
        clients.append(parts if k in WITHOUT else parts | {"valid": (other[:3], labels[:3])})
    return FederatedData.from_arrays(clients, classes=3)


def loss_on(part: Any, k: int, theta: np.ndarray) -> float:
    """The mean cross entropy of the linear model theta on a part of client k's data, by hand."""
    X, y = (tensor.numpy() for tensor in part.client(k))
    scores = X @ theta[:12].reshape(3, 4).T + theta[12:]
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grid", [GRID, (0.25, 0.5, 0.75)], ids=str)
def test_it_is_the_algorithm_client_by_client(
    halved: FederatedData, linear: Task, slope: Any, weighted: bool, cohort: int, grid: tuple[float, ...]
) -> None:
    """Every candidate is trained and judged by hand, and the one with the least loss on validation data is kept."""
    done = run(linear, halved, MAPPER(alpha=grid, weighted=weighted, **FULL), cohort=cohort)
    w, sizes = linear.start().numpy(), halved.train.sizes.tolist()
    v, alpha, chose = [w for _ in sizes], [0.0] * N, set()
    for t in range(1, ROUNDS + 1):
        chosen = cohort_of(t, cohort)
        n, update = {k: sizes[k] if weighted else 1 for k in chosen}, np.zeros_like(w)
        for k in chosen:
            tried = []
            for a in grid:
                x = v[k]
                for _ in range(3):
                    x = x - 0.3 * a * slope(k, a * x + (1 - a) * w)
                tried.append(x)
            if k in WITHOUT:
                best = (len(grid) - 1) // 2
            else:
                judged = [loss_on(halved.valid, k, a * x + (1 - a) * w) for a, x in zip(grid, tried, strict=True)]
                best = int(np.argmin(judged))
            v[k], alpha[k] = tried[best], grid[best]
            chose.add(best)
            x = w
            for _ in range(3):
                x = x - 0.3 * (1 - alpha[k]) * slope(k, alpha[k] * v[k] + (1 - alpha[k]) * x)
            update += n[k] / sum(n.values()) * (x - w)
        w = w + update
        row = done.history.rounds[t - 1]
        counts = [row[f"alpha={a:g}"] for a in grid]
        assert counts == [sum(alpha[k] == a for k in chosen) for a in grid]
    assert len(chose) > 1
    assert far(shared(done), w) <= 1e-10
    expected = np.stack([a * x + (1 - a) * w for a, x in zip(alpha, v, strict=True)])
    assert far(deployed(done), expected) <= 1e-10
    assert set(column(done, "gradients")) == {cohort * 3 * (len(grid) + 1)}
    assert set(column(done, "bytes_up")) == {cohort * (15 * 8 + 4 * weighted)}
    assert set(column(done, "bytes_down")) == {cohort * 15 * 8}


def test_it_never_looks_at_test_data(halved: FederatedData, linear: Task) -> None:
    parts = {name: [halved.part(name).client(k) for k in range(N)] for name in ("train", "valid", "test")}
    swapped = [
        {"train": parts["train"][k], "test": (X, (y + 1) % 3)}
        | ({} if k in WITHOUT else {"valid": parts["valid"][k]})
        for k, (X, y) in enumerate(parts["test"])
    ]
    other = FederatedData.from_arrays(swapped, classes=3)
    method = MAPPER(alpha=GRID, **MINI)
    one, swapped_tests = (deployed(run(linear, given, method, rounds=2)) for given in (halved, other))
    assert far(one, swapped_tests) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_with_alpha_0_it_is_fedavg(halved: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    mixed = run(mlp, halved, MAPPER(alpha=0.0, weighted=True, **MINI), **settings)
    plain = shared(run(mlp, halved, FedAvg(**MINI), **settings))
    assert far(deployed(mixed), plain.expand(N, -1)) <= 1e-12 and far(shared(mixed), plain) <= 1e-12


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_with_alpha_1_it_is_local_training(halved: FederatedData, mlp: Task, stragglers: float) -> None:
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    mixed = run(mlp, halved, MAPPER(alpha=(1.0,), **MINI), **settings)
    assert far(deployed(mixed), deployed(run(mlp, halved, Local(**MINI), **settings))) <= 1e-12
    assert far(shared(mixed), mlp.start()) == 0


def test_the_loss_on_validation_data_is_the_least_of_all_candidates(halved: FederatedData, mlp: Task) -> None:
    """In the first round of each, since candidates then start from the same models."""
    whole = run(mlp, halved, MAPPER(alpha=GRID, **MINI), rounds=1)
    singles = [run(mlp, halved, MAPPER(alpha=a, **MINI), rounds=1) for a in GRID]
    start = mlp.start()

    def mixed(done: Any, alpha: float, k: int) -> float:
        """The loss of the mixture with the w that was heard: what is deployed, less what w has moved since."""
        theta = deployed(done)[k] - (1 - alpha) * (shared(done) - start)
        X, y = halved.valid.client(k)
        with torch.no_grad():
            return float(nn.functional.cross_entropy(mlp.module(theta)(X), y))

    for k in (k for k in range(N) if k not in WITHOUT):
        judged = [mixed(done, a, k) for done, a in zip(singles, GRID, strict=True)]
        best = int(np.argmin(judged))
        assert mixed(whole, GRID[best], k) == pytest.approx(judged[best], abs=1e-12)


def test_a_client_that_never_took_part_deploys_the_global_model(halved: FederatedData, mlp: Task) -> None:
    done = run(mlp, halved, MAPPER(**MINI), rounds=1, cohort=3)
    idle = [k for k in range(N) if k not in cohort_of(1, 3)]
    assert far(deployed(done)[idle], shared(done).expand(len(idle), -1)) == 0


def test_newcomers_choose_for_themselves(halved: FederatedData, linear: Task) -> None:
    """They train on what the others have learned, and deploy a mixture that fits them better than w."""
    done = run(linear, halved, MAPPER(alpha=GRID, **FULL), newcomers=[4], newcomer_rounds=5)
    last = done.clients.filter((done.clients["round"] == ROUNDS) & (done.clients["client"] == N - 1))
    own, common = (last.filter(last["model"] == model)["train_loss"][0] for model in ("personal", "shared"))
    assert own < common


def test_running_statistics_are_refused(data: FederatedData) -> None:
    several = FederatedData.from_arrays([{"train": data.train.client(k)} for k in (0, 2, 4)], classes=3)
    task = Task(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double())
    with pytest.raises(TaskError, match=r"MAPPER cannot train a model with running statistics.*GroupNorm"):
        run(task, several, MAPPER(**FULL), rounds=1)


@pytest.mark.parametrize("alpha", [-0.1, (0.5, 1.1), (), float("nan")])
def test_candidates_lie_between_0_and_1(alpha: Any) -> None:
    with pytest.raises(SettingError, match=r"MAPPER\.alpha = .*: it must be (from 0 to 1|a number, or several)"):
        MAPPER(alpha=alpha)


def test_a_candidate_stands_once() -> None:
    with pytest.raises(SettingError, match=r"MAPPER\.alpha = \(0\.5, 0\.5\): it must be different candidates"):
        MAPPER(alpha=(0.5, 0.5))
