"""A large comparison stays a page that one can send."""

from __future__ import annotations

import numpy as np
import pytest

from descant.experiment import Federation, History, Run
from descant.report import Report

CLIENTS, ROUNDS = 250, 200


def made_up(label: int, federation: Federation) -> Run:
    """A run as long as a paper's, whose figures are drawn."""
    draw, history = np.random.default_rng(label), History("accuracy", True, federation)
    for t in range(ROUNDS + 1):
        for model in ("personal", "shared"):
            accuracy = (1 - 0.9 * np.exp(-t / (20 + label)) + draw.normal(0, 0.1, CLIENTS)).clip(0, 1)
            values = {"accuracy": accuracy, "loss": 1 - accuracy}
            columns = {f"{part}_{name}": v for part in ("train", "valid", "test") for name, v in values.items()}
            history.evaluated.setdefault(model, {})[t] = columns
        history.spent[t] = {
            name: np.full(CLIENTS, t * 1000 * (label + 1))
            for name in ("gradients", "examples", "bytes_up", "bytes_down")
        }
        spent = dict.fromkeys(("bytes_up", "bytes_down", "gradients", "examples"), 1000 * CLIENTS)
        history.rounds.append({"round": t, "seconds": 0.1} | spent)
    config = {
        "data": {"name": "made up", "clients": CLIENTS, "classes": 10, "settings": {"seed": 0}},
        "task": {"parameters": 1000, "loss": "cross_entropy", "metric": "accuracy"},
        "method": {"name": "made-up", "lam": label},
        **{"rounds": ROUNDS, "cohort": CLIENTS, "seed": 0, "label": f"method {label}"},
    }
    return Run(config, history)


@pytest.mark.slow
def test_fifty_runs_of_two_hundred_rounds_and_250_clients_stay_below_15_megabytes() -> None:
    draw = np.random.default_rng(0)
    sizes = {part: draw.integers(20, 200, CLIENTS) for part in ("train", "valid", "test")}
    names = [f"client {k}" for k in range(CLIENTS)]
    federation = Federation(names, sizes, draw.integers(0, 30, (CLIENTS, 10)))
    report = Report([made_up(label, federation) for label in range(50)])
    assert len(report.html().encode()) < 15e6
    assert len(report.experiments[0].entries) == 50
