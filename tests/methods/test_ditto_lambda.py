"""A lambda that every client of Ditto chooses on its validation data."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from descant import FederatedData, Task
from descant.catalog import build, describe
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg
from tests import held
from tests.held import personal, shared
from tests.methods.ditto_loop import ROUNDS, Oracle, ditto, run
from tests.methods.runs import MINI, PARTICIPATION, Vector, column, far, who

VALID = (0, 3, 4, 5, 8, 12, 2)  # validation examples: too few of them for clients 0, 1 and 6


@pytest.fixture(scope="module")
def validated(data: FederatedData) -> FederatedData:
    """The clients of `data`, most of them with validation data, of another labelling than the training data."""
    generator = torch.Generator().manual_seed(8)
    clients = []
    for k, n in enumerate(VALID):
        X, y = data.train.client(k)
        valid = torch.randn(n, X.shape[1], generator=generator, dtype=torch.float64)
        label = torch.randint(3, (n,), generator=generator)
        parts = {"train": (X, y), "valid": (valid, label)}
        clients.append({part: rows for part, rows in parts.items() if len(rows[1])})
    return FederatedData.from_arrays(clients, classes=3)


@pytest.fixture
def oracle(data: FederatedData, linear: Task, slope: Any) -> Any:
    """oracle(cohort, everyone): the loop on the clients of `data`."""
    return partial(Oracle, slope, linear.start().numpy(), data.train.sizes.tolist())


def loss(theta: Vector, X: Vector, y: NDArray[np.int64]) -> float:
    scores = X @ theta[:12].reshape(3, 4).T + theta[12:]
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


@pytest.mark.few(1)
@PARTICIPATION
@pytest.mark.parametrize("after", [None, 2])
@pytest.mark.parametrize("lams", [(0.05, 0.1, 0.2), (0.1, 1.0, 2.0), (0.3, 4.0)])
def test_a_lambda_chosen_on_validation_data_is_the_loop_over_clients(
    validated: FederatedData,
    linear: Task,
    oracle: Any,
    cohort: int,
    everyone: bool,
    after: int | None,
    lams: tuple[float, ...],
) -> None:
    done = run(linear, validated, ditto(lam=lams, after=after), **who(cohort, everyone))
    found = oracle(cohort, everyone)
    w, v = found.joint(lams) if after is None else found.finetuned(lams, after)
    trained = {k for t in range(1 + (after or 0), ROUNDS + 1) for k in found.who(t)[1]}
    middle = {3: 1, 2: 0}[len(lams)]
    choice, expected = [], []
    for k in range(7):
        models = v[k] if after is None or k in v else [w] * len(lams)
        best = middle
        if VALID[k] >= 4 and k in trained:
            best = int(np.argmin([loss(x, *(part.numpy() for part in validated.valid.client(k))) for x in models]))
        choice.append(best)
        expected.append(models[best])
    assert held.by_clients(done)["choice"].tolist() == choice
    assert far(personal(done), np.stack(expected)) <= 1e-10
    assert far(shared(done), w) <= 1e-10
    if cohort == 7:
        assert len(set(choice)) > 1, "clients differ in their choice"
        reported = [done.history.rounds[-1][f"lam={lam:g}"] for lam in lams]
        assert reported == [choice.count(c) for c in range(len(lams))]


@pytest.mark.slow
@pytest.mark.parametrize("after", [None, 2])
def test_every_candidate_is_the_ditto_of_its_lambda(validated: FederatedData, mlp: Task, after: int | None) -> None:
    """On minibatches, with stragglers: they see the same examples as if they were alone."""
    settings: dict[str, Any] = {"cohort": 4, "stragglers": 0.5}
    lams = (0.0, 0.1, 1.0, 2.0)
    method = Ditto(lam=lams, after=after, solver=FedAvg(**MINI), **MINI)
    models = held.by_clients(run(mlp, validated, method, **settings))["v"]
    for c, lam in enumerate(lams):
        alone = run(mlp, validated, Ditto(lam=lam, after=after, solver=FedAvg(**MINI), **MINI), **settings)
        assert far(models[:, c], held.by_clients(alone)["v"]) <= 1e-12
    assert far(models[:, 0], models[:, 3]) > 1e-2


def test_every_candidates_gradients_are_counted(validated: FederatedData, linear: Task) -> None:
    done = run(linear, validated, ditto(lam=(0.1, 1.0, 2.0)))
    assert column(done, "gradients") == [7 * (3 + 3 * 4)] * ROUNDS


def test_without_validation_data_everyone_takes_the_middle_lambda(data: FederatedData, linear: Task) -> None:
    chosen = run(linear, data, ditto(lam=(0.1, 1.0, 2.0)))
    assert far(personal(chosen), personal(run(linear, data, ditto(lam=1.0)))) <= 1e-12
    assert column(chosen, "lam=1") == [7] * ROUNDS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": ()}, r"Ditto\.lam = \(\): it must be a number, or several that rise"),
        ({"lam": (1.0, 0.1)}, r"Ditto\.lam = \(1\.0, 0\.1\): it must be a number, or several that rise"),
        ({"lam": (-1.0, 0.1)}, r"Ditto\.lam = \(-1\.0, 0\.1\): it must be zero or more"),
        ({"after": 0}, r"Ditto\.after = 0: it must be a positive number of rounds, or nothing"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Ditto(**settings)


def test_candidates_come_from_a_settings_file() -> None:
    method = build("methods", {"name": "ditto", "lam": [0.05, 0.1, 0.2], "after": 3})
    assert method == Ditto(lam=(0.05, 0.1, 0.2), after=3)
    assert build("methods", describe(method)) == method
