"""The page of `descant theory` in a real browser, from a file, without a network."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from descant.report.theory import theory_page
from descant.theory.figures import FIGURES
from tests.report.test_page import in_browser, opened
from tests.report.test_robust_page import WIDTHS


def test_every_figure_of_a_page_is_there_with_what_it_shows() -> None:
    names = ["flame-proposition-3", "lp-proj-theorem-14"]
    charts = {name: FIGURES[name](100, 3) for name in names}
    page = theory_page(charts, 1000, 3)
    assert re.findall(r'<figure id="theory-([^"]*)"', page) == names
    assert all(chart.title in page for chart in charts.values()) and "FLAME, Proposition 3: what varies" in page
    assert "1,000 trials, seed 3." in page
    assert "0 runs" not in page and "Settings" not in page and 'class="legend"' not in page
    specs = re.search(r'id="specs">(.*?)</script>', page)
    assert specs is not None
    for spec in json.loads(specs[1]).values():
        legends = [layer["encoding"]["color"]["legend"] for layer in spec["layer"] if "color" in layer["encoding"]]
        assert legends and spec["width"] == "container", "the page has no legend for all: each panel has its own"


@pytest.mark.slow
@in_browser
def test_the_page_is_as_wide_as_a_narrow_window(tmp_path: Path) -> None:
    charts = {name: figure(100, 0) for name, figure in FIGURES.items()}
    before, after = theory_page(charts, 100, 0).rsplit("</body>", 1)
    (page := tmp_path / "theory.html").write_text(f"{before}{WIDTHS}</body>{after}", encoding="utf-8")
    dom, said = opened(page, tmp_path / "profile", width=500)
    told = re.search(r"<title>(.*?)</title>", dom)
    assert told is not None and said == []
    found = json.loads(unescape(told[1]))
    assert found["whole"] == found["seen"] <= 500
    assert f'data-drawn="{sum(len(chart.hconcat) for chart in charts.values())}"' in dom
    widths = [float(width) for width in re.findall(r'<svg[^>]* width="([0-9.]+)" height', dom)]
    assert widths and max(widths) <= found["seen"]
