"""Tables on a terminal: which figures, and what a narrow one keeps."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from descant.cli.tables import figure_table, short
from descant.errors import SettingError
from descant.experiment import Run
from descant.experiment.grid import Cell, comparison

SETTINGS = {
    "data": {"name": "synthetic", "clients": 5, "samples": 30},
    "rounds": 2,
    "seeds": 2,
    "methods": {"One step": {"name": "local", "steps": 1}, "Averaged": {"name": "fedavg", "steps": 1}},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Cell, Run]]:
    return list(comparison(SETTINGS, tmp_path_factory.mktemp("grid")).run())


def printed(what: object, width: int = 140) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(what)
    return console.export_text()


def test_a_figure_is_printed_by_seed_and_in_the_mean(results: list[tuple[Cell, Run]]) -> None:
    name = "personal.test_accuracy.mean@best_on_test"
    text = printed(figure_table(results, name))
    assert name in "".join(text.split()) and "seed 0" in text and "seed 1" in text
    by_seed = [run.summary()[name] for cell, run in results if cell.label == "One step"]
    [line] = [line for line in text.splitlines() if line.strip().startswith("One step")]
    assert line.split()[2:] == [short(by_seed[0]), short(by_seed[1]), short(sum(by_seed) / 2)]


def test_a_figure_that_there_is_not_is_refused_with_the_nearest(results: list[tuple[Cell, Run]]) -> None:
    with pytest.raises(SettingError, match=r"Did you mean 'personal.test_accuracy.mean@last'"):
        figure_table(results, "personal.test_acuracy.mean@last")
