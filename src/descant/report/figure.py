"""A figure: panels with a title and a caption, for a page, a notebook or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from descant.report.look import Style, config

Chart = alt.Chart | alt.LayerChart
HEIGHT = 240


@dataclass(frozen=True)
class Figure:
    """What one picture shows; `caption` says what to look for.

    `small` panels stand several in a row; a `wide` figure takes the whole width of the page.
    """

    key: str
    title: str
    caption: str
    panels: tuple[Chart, ...]
    small: bool = False
    wide: bool = False

    @property
    def chart(self) -> alt.ConcatChart:
        """All panels in one picture, with its title: what a notebook shows and a file holds."""
        width = 260 if self.small else 460
        panels = [panel.properties(width=width) for panel in self.panels]
        together: alt.ConcatChart = alt.concat(*panels, columns=3 if self.small else 2)
        title = alt.TitleParams(self.title, fontSize=16, offset=12)
        return together.properties(title=title, config=config() | {"background": "#FFFFFF"})


@dataclass(frozen=True)
class Palette:
    """The scales that give every label its own colour, shape and dash, the same in all charts of a report."""

    styles: Mapping[str, Style]

    def colour(self, labels: Sequence[str], legend: bool = True) -> alt.Color:
        return alt.Color("method:N", **self._scale(labels, "colour", legend))

    def dash(self, labels: Sequence[str]) -> alt.StrokeDash:
        return alt.StrokeDash("method:N", **self._scale(labels, "dash"))

    def shape(self, labels: Sequence[str]) -> alt.Shape:
        return alt.Shape("method:N", **self._scale(labels, "shape"))

    def _scale(self, labels: Sequence[str], channel: str, legend: bool = True) -> dict[str, Any]:
        values = [getattr(self.styles[label], channel) for label in labels]
        scale = alt.Scale(domain=list(labels), range=[list(v) if isinstance(v, tuple) else v for v in values])
        return {"scale": scale} if legend else {"scale": scale, "legend": None}


def scale(*columns: pl.Series, **more: Any) -> alt.Scale:
    """A scale that begins where the numbers do; around a single number it is wide enough for ticks that say it.

    (Of a scale from .966 to .966 Vega-Lite makes one tick, and rounds it to 1.)
    """
    found = span(*columns)
    if found is None or found[1] - found[0] > 1e-6 * max(abs(found[0]), abs(found[1])):
        return alt.Scale(zero=False, **more)
    return alt.Scale(domain=widened(*found), nice=False)


def span(*columns: pl.Series) -> tuple[float, float] | None:
    """The least and the greatest number of some columns; None where there is none."""
    numbers = pl.concat([column.cast(pl.Float64) for column in columns]).drop_nulls().drop_nans()
    return None if numbers.is_empty() else (float(numbers.min()), float(numbers.max()))  # type: ignore[arg-type]


def widened(low: float, high: float) -> list[float]:
    """A domain for an axis, with room on both sides of a single number."""
    room = 0.0 if high > low else 0.05 * abs(low) or 0.05
    return [low - room, high + room]


def panel_title(label: str) -> alt.TitleParams:
    """The label of a small panel, cut where it would run into the next panel."""
    return alt.TitleParams(label, limit=220)


def layered(*layers: alt.Chart, data: pl.DataFrame | None = None) -> alt.LayerChart:
    """Charts on top of each other, on the same data."""
    together = alt.layer(*layers) if data is None else alt.layer(*layers, data=data)
    assert isinstance(together, alt.LayerChart)
    return together
