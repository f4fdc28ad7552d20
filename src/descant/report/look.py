"""How charts look: colours that colour-blind readers can tell apart, shapes and dashes for when they run out.

Charts carry the light colours; the page puts CSS variables in their place, so that one drawing serves light, dark
and paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# No two of a palette are nearer than .2 in OKLab to most eyes, and .1 to colour-blind ones: more colours would be.
LIGHT = ("#0072B2", "#D55E00", "#00B080", "#9B1D65", "#C36DFF", "#4D4C00", "#3E00A3")
DARK = ("#4DA3DC", "#FF8A3D", "#A5FF17", "#C9068E", "#FFD9FF", "#826426", "#7B03FF")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
INK, FAINT, ACCENT = "#1A1A1B", "#D9D9DC", "#2F6DB5"  # text, grid lines, what belongs to no method

# What stands for a colour on the page; see page.css.
VARIABLES = {colour: f"var(--m{i})" for i, colour in enumerate(LIGHT)}
VARIABLES |= {INK: "var(--ink)", FAINT: "var(--faint)", ACCENT: "var(--accent)"}


@dataclass(frozen=True)
class Style:
    """How one label is drawn, in every chart of a report."""

    colour: str
    dash: tuple[int, ...]
    shape: str


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A style for each label: colours first, then the same colours dashed."""
    n = len(LIGHT)
    return {
        label: Style(LIGHT[i % n], DASHES[i // n % len(DASHES)], SHAPES[(i % n + i // n) % len(SHAPES)])
        for i, label in enumerate(labels)
    }


def config() -> dict[str, Any]:
    """The Vega-Lite configuration of every chart."""
    return {
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": None, "continuousWidth": 420, "continuousHeight": 240},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "tickColor": FAINT,
            "domainColor": FAINT,
            "gridColor": FAINT,
            "gridOpacity": 0.6,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
        },
        "title": {"color": INK, "anchor": "start", "fontSize": 13, "fontWeight": 600},
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "orient": "bottom",
            "columns": 3,
            "labelLimit": 260,
            "titleLimit": 260,
            "title": None,
        },
        "line": {"strokeWidth": 2},
        "point": {"size": 70, "filled": True, "opacity": 0.95},
    }
