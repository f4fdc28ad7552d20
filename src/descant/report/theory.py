"""The page of `descant theory`: the papers' theoretical figures, each with what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getdoc

from altair import LayerChart

from descant.report.figure import Figure
from descant.report.page import figures_page
from descant.theory.figures import FIGURES, Chart


def theory_page(charts: Mapping[str, Chart], trials: int, seed: int) -> str:
    """All figures on one page that opens from disk, needs no network, and fits a screen and a phone."""
    figures = []
    for name, chart in charts.items():
        panels = tuple(panel for panel in chart.hconcat if isinstance(panel, LayerChart))
        figures.append(Figure(name, chart.title, getdoc(FIGURES[name]) or "", panels, wide=len(panels) > 1))
    about = f"Lines are closed forms, points are simulations: {trials:,} trials, seed {seed}."
    return figures_page("descant: the papers' theory", "Figures", about, figures, "theory")
