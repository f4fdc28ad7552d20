"""Synthetic(0, 0) under the settings of the code that lp-proj's authors published: the figures that it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from descant.experiment.grid import Grid, comparison
from descant.experiment.settings import read_settings

SETTINGS = Path(__file__).parents[1] / "examples" / "lp-proj-synthetic.yaml"

# Best test accuracy from round 20 on, of the authors' code on draws of its own data generator with 202 examples.
AUTHORS = {
    "lp-proj-1": 0.91,
    "lp-proj-2": 0.91,
    "Ditto": 0.87,
    "pFedMe": 0.86,
    "FedAvg": 0.77,
    "local, 1 step": 0.88,
}


def best_on_test(label: str) -> float:
    grid = comparison(read_settings(SETTINGS))
    cells = tuple(cell for cell in grid.cells if cell.label == label)
    assert len(cells) == 3, "three draws of the data"
    figures = [run.summary(first=20)["personal.test_accuracy.mean@best_on_test"] for _, run in Grid(cells).run()]
    return float(np.mean(figures))


@pytest.mark.slow
@pytest.mark.parametrize(("label", "accuracy"), AUTHORS.items())
def test_the_accuracy_is_that_of_the_authors_code(label: str, accuracy: float) -> None:
    assert best_on_test(label) == pytest.approx(accuracy, abs=0.02)


@pytest.mark.slow
def test_local_training_with_as_many_steps_is_as_good_as_lp_proj() -> None:
    assert best_on_test("local, 20 steps") == pytest.approx(best_on_test("lp-proj-1"), abs=0.005)
