"""The figures show the closed forms."""

from __future__ import annotations

from typing import Any

import pytest

from descant.theory.ditto import FIGURE_1
from descant.theory.figures import FIGURES
from descant.theory.regression import FederatedRegression


def drawn(name: str) -> list[dict[str, Any]]:
    """All the points of a figure, from every panel and layer."""
    spec = FIGURES[name](100, 0).to_dict()
    found: list[dict[str, Any]] = []
    for panel in spec["hconcat"]:
        for layer in panel["layer"]:
            data = layer["data"]
            found += data["values"] if "values" in data else spec["datasets"][data["name"]]
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_points_that_are_numbers(name: str) -> None:
    points = drawn(name)
    assert len(points) > 40
    for point in points:
        assert all(value - value == 0 for value in point.values() if isinstance(value, float))


def test_dittos_figure_marks_lambda_star_and_the_fairest() -> None:
    marks = {point["name"]: point["x"] for point in drawn("ditto-figure-1") if "name" in point}
    assert marks["λ*, the fairest too"] == pytest.approx(FIGURE_1["clean"].lambda_star)
    assert marks["λ*"] == pytest.approx(FIGURE_1["attacked"].lambda_star)
    assert marks["fairest"] == pytest.approx(FIGURE_1["attacked"].fairest)


def test_lp_projs_figure_is_of_its_closed_forms() -> None:
    lines = [point for point in drawn("lp-proj-figure-1") if point.get("of") == "lp-proj"]
    problem = FederatedRegression()
    exact = [point for point in lines if point["y"] == pytest.approx(problem.loss("lp-proj", point["x"]), rel=1e-9)]
    assert len(exact) == 240 and len(lines) == 249
