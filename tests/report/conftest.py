"""Small runs to report on: three methods with two seeds, and one that collapses."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.experiment.grid import comparison
from descant.report import Report

ODD = 'Ditto </script><b>& "co"|%_#'  # a label that HTML, Markdown and LaTeX would all trip over
METHODS = {
    "alone": {"name": "local", "steps": 2},
    ODD: {"name": "ditto", "steps": 2, "solver": {"name": "fedavg", "steps": 2}},
    "together": {"name": "fedavg", "steps": 4},
}


@pytest.fixture
def labels() -> list[str]:
    return list(METHODS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs of a comparison: Local with half of the gradients of the others."""
    folder = tmp_path_factory.mktemp("runs")
    values = {
        "data": {"name": "synthetic", "clients": 12, "samples": 40, "classes": 3},
        "rounds": 4,
        "seeds": 2,
        "mode": "vmap",
    }
    list(comparison(values | {"methods": METHODS}, folder).run())
    return folder


@pytest.fixture(scope="session")
def page(folder: Path) -> str:
    """The page of that comparison: to draw it takes a second."""
    return Report.of(folder, title="A comparison of three").html()


@pytest.fixture(scope="session")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which one of two methods diverges."""
    folder = tmp_path_factory.mktemp("collapsed")
    values = {
        "data": {"name": "synthetic", "clients": 5, "samples": 30},
        "rounds": 12,
        "methods": {"calm": {"name": "fedavg"}, "wild": {"name": "fedavg", "lr": 1e30, "weight_decay": 1e10}},
        "nonfinite": "keep",
        "mode": "vmap",
    }
    list(comparison(values, folder).run())
    return folder
