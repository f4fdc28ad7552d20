"""Early stopping: patience on validation data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import descant as dc
from descant.callbacks import EarlyStopping, Stop
from descant.errors import SettingError

NAME = "personal.valid_loss.mean"


def heard(stopping: EarlyStopping, losses: list[float], name: str = NAME) -> list[int]:
    """The rounds in which it asks to stop."""
    stopping.on_start({})
    asked = [stopping.on_evaluated(round, {name: loss}) for round, loss in enumerate(losses)]
    return [round for round, stop in enumerate(asked) if stop is not None]


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        ({"patience": 2}, [3.0, 2.0, 2.5, 1.0, 1.5, 1.2, 0.9], [5]),
        ({"patience": 1}, [3.0, 2.0, 1.0], []),
        ({"patience": 1}, [3.0, 3.0], [1]),
        ({"patience": 2, "least": 0.5}, [3.0, 2.8, 2.6, 2.0], [2]),
        ({"patience": 1, "first": 2}, [1.0, 2.0, 3.0, 2.5, 2.7], [4]),
        ({"patience": 2}, [3.0, float("nan"), float("inf")], [2]),
        ({"patience": 1, "higher_is_better": True}, [3.0, 2.0], [1]),
    ],
)
def test_it_asks_to_stop_when_its_patience_is_over(
    settings: dict[str, Any], losses: list[float], expected: list[int]
) -> None:
    assert heard(EarlyStopping(**settings), losses)[:1] == expected


def test_more_of_an_accuracy_is_better_and_less_of_an_error_or_a_spread() -> None:
    for name, worse in [
        ("personal.valid_accuracy.mean", [0.5, 0.4]),
        ("shared.valid_squared_error.mean", [0.4, 0.5]),
        ("personal.test_accuracy.std", [0.4, 0.5]),
    ]:
        assert heard(EarlyStopping(patience=1, figure=name), worse, name) == [1]
        assert heard(EarlyStopping(patience=1, figure=name), worse[::-1], name) == []


def test_it_begins_anew_with_every_run() -> None:
    stopping = EarlyStopping(patience=1)
    assert heard(stopping, [1.0, 2.0]) == [1]
    assert heard(stopping, [9.0, 8.0]) == []


def test_it_says_what_was_not_better() -> None:
    stopping = EarlyStopping(patience=1)
    stopping.on_start({})
    stopping.on_evaluated(4, {NAME: 1.0})
    stop = stopping.on_evaluated(5, {NAME: 2.0})
    assert stop == Stop("personal.valid_loss.mean was no better than in round 4 in 1 evaluations")


@pytest.mark.slow
def test_a_run_that_overfits_is_stopped_near_its_best_round() -> None:
    data = dc.data.synthetic(clients=6, samples=30, dim=30, classes=5, seed=2)
    torch.manual_seed(0)
    task, method = dc.Task(torch.nn.Linear(30, 5)), dc.methods.Local(steps=20, lr=0.5, batch=None)
    run = dc.simulate(task, data, method, rounds=30, mode="vmap", callbacks=EarlyStopping(patience=3))
    assert run.stopped is not None and run.stopped.round < 30
    losses = dict(zip(*_curve(run), strict=True))
    best = min(losses, key=lambda round: losses[round])
    assert run.stopped.round == best + 3, "three evaluations after the last that was better"


def _curve(run: dc.Run) -> tuple[list[int], list[float]]:
    rounds, numbers = run.history.curve("personal", "valid_loss")
    return rounds, numbers["mean"].tolist()


@pytest.mark.parametrize(
    ("settings", "figures", "message"),
    [
        ({"figure": "personal.valid_my.mean"}, {NAME: 1.0}, r"figure = 'personal\.valid_my\.mean': it is not eval"),
        ({}, {"personal.test_loss.mean": 1.0}, r"These are: personal\.test_loss\.mean"),
        ({}, {NAME: float("nan")}, "no client has examples in this part"),
        ({"figure": "personal.valid_my.mean"}, {"personal.valid_my.mean": 1.0}, "higher_is_better: give True or"),
    ],
)
def test_a_figure_that_is_not_there_or_says_nothing_is_refused(
    settings: dict[str, Any], figures: dict[str, float], message: str
) -> None:
    stopping = EarlyStopping(**settings)
    stopping.on_start({})
    with pytest.raises(SettingError, match=message):
        stopping.on_evaluated(0, figures)


@pytest.mark.parametrize("settings", [{"patience": 0}, {"least": -1.0}, {"least": float("nan")}, {"first": -1}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=rf"EarlyStopping\.{next(iter(settings))}"):
        EarlyStopping(**settings)
