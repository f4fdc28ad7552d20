"""A run, a task and data in a few words, and the round to report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import descant as dc
from descant.engine import Evaluated
from descant.errors import SettingError
from descant.experiment.history import Federation, History
from descant.experiment.table import rows

DATA = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)


def simulate(data: dc.FederatedData = DATA, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    how: dict[str, Any] = {"method": dc.methods.Ditto(steps=2), "rounds": 6, "mode": "vmap"} | settings
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), data, **how)


@pytest.fixture(scope="module")
def run() -> dc.Run:
    return simulate()


@pytest.mark.parametrize("model", ["personal", "shared"])
@pytest.mark.parametrize("first", [0, 3])
def test_the_best_round_is_that_of_the_summary(run: dc.Run, model: str, first: int) -> None:
    best, figures = run.best(model, first), run.summary(first)
    assert best.rule == "chosen_on_valid" and best.round == figures[f"{model}.round@chosen_on_valid"] >= first
    assert best.mean == figures[f"{model}.test_accuracy.mean@chosen_on_valid"]
    assert best.worst_10 == figures[f"{model}.test_accuracy.worst_10@chosen_on_valid"]
    until = run.rounds.filter(run.rounds["round"] <= best.round)
    assert best.bytes_up == until["bytes_up"].sum() and best.bytes_down == until["bytes_down"].sum()
    assert best.gradients_per_client == until["gradients"].sum() / 5


def test_without_validation_data_it_is_the_last_round_and_all_that_was_spent() -> None:
    x, y = np.random.default_rng(0).standard_normal((20, 4)).astype("float32"), np.arange(20) % 3
    clients = [{"train": (x, y), "test": (x[::2], y[::2])}] * 3
    run = simulate(dc.FederatedData.from_arrays(clients))
    best, figures = run.best(), run.summary()
    assert (best.model, best.rule, best.round) == ("personal", "last", 6)
    assert best.mean == figures["personal.test_accuracy.mean@last"]
    assert best.bytes_up == figures["bytes_up"] > 0
    assert best.gradients_per_client == figures["gradients_per_client"]


def test_newcomers_spend_nothing_and_count_for_nothing() -> None:
    run = simulate(newcomers=2, evaluate={"parts": ["train", "test"]})
    best, figures = run.best(), run.summary()
    assert best.rule == "last" and best.gradients_per_client == figures["gradients_per_client"] > 0
    assert best.mean == figures["personal.test_accuracy.mean@last"] and "3 clients" in repr(run)


def test_a_model_that_was_not_evaluated_is_refused() -> None:
    run = simulate(evaluate={"models": ["shared"]})
    assert run.best().model == "shared"
    with pytest.raises(SettingError, match=r"no evaluated model called 'personal'.*Known: shared"):
        run.best("personal")


def test_a_run_is_two_lines() -> None:
    run = simulate(label="mine")
    first, second = repr(run).split("\n")
    assert first == "Run(mine, ditto on synthetic, 5 clients, seed 0: 6 rounds"
    best = run.best()
    assert f"test accuracy {best.mean:.3f}, worst tenth of clients {best.worst_10:.3f}" in second
    assert f"in round {best.round} (chosen on validation data)" in second


def test_a_collapsed_run_says_so() -> None:
    run = simulate(method=dc.methods.Local(lr=1e38, steps=3), rounds=9)
    assert run.collapse is not None and f"collapsed in round {run.collapse.round}" in repr(run)


def test_data_and_tasks_are_short() -> None:
    assert repr(DATA) == (
        "FederatedData(synthetic: 5 clients, 3 classes, inputs [4] float32\n"
        "    100 train, 20 valid, 30 test examples; a client trains on 20)"
    )
    x = np.ones((7, 2))
    ragged = dc.FederatedData.from_arrays([(x, x[:, 0]), (x[:4], x[:4, 0])])
    assert "2 clients, regression, inputs [2] float64" in repr(ragged)
    sizes = ragged.train.sizes.tolist()
    assert f"a client trains on {min(sizes)} to {max(sizes)})" in repr(ragged)
    assert repr(dc.Task(torch.nn.Linear(400, 3))) == (
        "Task(Linear, 1,203 parameters, float32; loss cross_entropy, metric accuracy)"
    )


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_round_so_far_is_that_of_all_rounds_looked_at_anew(higher: bool) -> None:
    """Round after round, with ties, with rounds that have no figure, and one that is evaluated a second time."""
    federation = Federation(["a", "b"], {part: np.array([3, 3]) for part in ("train", "valid", "test")})
    history = History("accuracy", higher, federation)
    draws = np.random.default_rng(0)
    means: dict[int, float] = {}
    times: dict[int, int] = {}
    for t in [*range(40), 39, 39, *range(40, 60)]:
        again = {2: 5.0 if higher else -5.0, 3: 0.5}  # it is the best, and then it is not
        times[t] = times.get(t, 0) + 1
        means[t] = again.get(times[t]) or float(
            draws.choice([0.25, 0.5, 0.75, np.nan]) if t % 2 else draws.integers(0, 9) / 8
        )
        values = torch.full((2,), means[t], dtype=torch.float64)
        history.add(Evaluated(t, "personal", {"valid": values}, {"valid": values}))
        for first in (0, 7, 50):
            known = [s for s in means if s >= first and not np.isnan(means[s])]
            best = (max if higher else min)((means[s] for s in known), default=None)
            wanted = next((s for s in known if means[s] == best), None)
            assert history.best_round("personal", "valid", first) == wanted, (t, first)
    assert history.best_round("shared", "valid", 0) is None


def test_a_first_round_after_the_last_is_refused(run: dc.Run) -> None:
    assert run.best(first=6).round == 6
    for first in (-1, 7):
        with pytest.raises(SettingError, match=f"first = {first}: it must be a whole number from 0 to 6, the last"):
            run.best(first=first)


@pytest.mark.parametrize("first", ["x", None, 1.5, True])
def test_a_first_round_that_is_no_number_is_refused(run: dc.Run, first: Any) -> None:
    with pytest.raises(SettingError, match=f"first = {first!r}: it must be a whole number from 0 to 6"):
        run.best(first=first)
    with pytest.raises(SettingError, match=f"first = {first!r}: rounds are counted from 0"):
        rows([("mine", run)], first)


def test_a_round_after_which_nothing_was_evaluated_is_not_reported() -> None:
    """The run goes on for some rounds after round 0, and collapses before it is evaluated again."""
    run = simulate(method=dc.methods.Local(lr=1e10, weight_decay=1.0, steps=1), rounds=9, evaluate=9)
    assert run.collapse is not None and len(run.rounds) > 0 and list(run.history.evaluated["personal"]) == [0]
    assert run.best().round == 0
    with pytest.raises(SettingError, match="first = 1: it must be a whole number from 0 to 0, the last round"):
        run.best(first=1)
