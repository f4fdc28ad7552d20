"""The page of a table of robustness in a real browser, from a file, without a network."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import descant as dc
from descant.report.robust import RobustReport
from tests.report.conftest import ODD
from tests.report.test_page import in_browser, opened, panels


@pytest.fixture(scope="module")
def found() -> dc.Robustness:
    """Three methods, of which one has a defence and an odd label, and an attack under which one collapses."""
    data = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
    methods: dict[str, Any] = {
        "plain": {"name": "fedavg", "steps": 1},
        ODD: {"name": "fedavg", "steps": 1, "run": {"aggregator": "trimmed-mean"}},
        "alone": {"name": "local", "steps": 1},
    }
    attacks = {"flip </script>": "sign-flip", "blast": {"name": "sign-flip", "tau": 1e25, "on": "position"}}
    settings: dict[str, Any] = {"rounds": 4, "mode": "vmap", "nonfinite": "keep", "seeds": 2, "assumed": [True, 1]}
    task = dc.Task(dc.models.linear(data))
    return dc.robustness(task, data, methods, attacks=attacks, fractions=[0, 0.2, 0.4], **settings)


@pytest.mark.slow
@in_browser
def test_every_chart_is_drawn_and_nothing_is_complained_about(found: dc.Robustness, tmp_path: Path) -> None:
    page = found.save(tmp_path)[-1]
    dom, said = opened(page, tmp_path / "profile")
    wanted = sum(len(figure.panels) for figure in RobustReport(found.runs).figures)
    assert wanted == 2 + 2 + 2  # a panel an attack; a fraction; a defence under an attack
    assert f'data-drawn="{wanted}"' in dom, said
    assert said == []
    drawn = panels(dom)
    assert len(drawn) == wanted
    for panel in drawn:
        assert 'data-drawn="yes"' in panel and re.search(r'class="mark-(line|rect)', panel)
        assert re.search(r'aria-label="(X|Y)-axis', panel), "with axes"
    assert any("★" in panel for panel in drawn), "a collapse is marked"


@pytest.mark.slow
def test_names_are_shown_and_never_obeyed(found: dc.Robustness, tmp_path: Path) -> None:
    page = found.save(tmp_path)[-1].read_text()
    assert "</script><b>" not in page and "flip </script>" not in page
    assert page.count("<script") == page.count("</script>") == 3


@pytest.mark.slow
def test_the_tables_say_who_collapsed_and_why(found: dc.Robustness) -> None:
    report = RobustReport(found.runs, rule="last")
    collapses = report.tables["Collapses"]
    told = [tuple(cell.text for cell in row[:5]) for row in collapses.rows]
    gone = [
        (place, run.config["seed"], run.collapse.round)
        for place, runs in found.runs.items()
        for run in runs
        if run.collapse is not None
    ]
    assert len(told) == len(gone) > 0
    for (place, seed, round), (method, attack, share, said_seed, said_round) in zip(gone, told, strict=True):
        assert method.startswith(place.method) and attack == place.attack
        assert (share, said_seed, said_round) == (f"{100 * place.fraction:g} %", str(seed), str(round))


WIDTHS = """
<script>
(async () => {
  while (!document.documentElement.dataset.drawn) await new Promise((next) => setTimeout(next, 50));
  const page = document.documentElement;
  const boxes = [...document.querySelectorAll(".scroll")].map((box) => {
    const right = box.getBoundingClientRect().right;
    return { right, seen: box.clientWidth, whole: box.scrollWidth, main: box.firstChild.matches(".main") };
  });
  document.title = JSON.stringify({ seen: page.clientWidth, whole: page.scrollWidth, boxes });
})();
</script>
"""


@pytest.mark.slow
@in_browser
def test_a_wide_table_scrolls_in_its_own_box_and_the_page_does_not(tmp_path: Path) -> None:
    data = dc.data.synthetic(clients=20, samples=12, dim=4, classes=3)
    name = "a_label_of_one_word_that_is_much_longer_than_a_narrow_window_is_wide_in_any_font"
    attacks = {f"attack_{name}": "sign-flip", "blast": {"name": "sign-flip", "tau": 1e25, "on": "position"}}
    methods: dict[str, Any] = {f"method_{name}": {"name": "fedavg", "steps": 1}, "alone": "local"}
    fractions = [0.05 * i for i in range(10)]
    task = dc.Task(dc.models.linear(data))
    table = dc.robustness(task, data, methods, attacks=attacks, fractions=fractions, rounds=1, mode="vmap")
    page = table.save(tmp_path)[-1]
    before, after = page.read_text(encoding="utf-8").rsplit("</body>", 1)
    page.write_text(f"{before}{WIDTHS}</body>{after}", encoding="utf-8")
    dom, _ = opened(page, tmp_path / "profile", width=500)
    told = re.search(r"<title>(.*?)</title>", dom)
    assert told is not None
    found = json.loads(unescape(told[1]))
    assert found["whole"] == found["seen"] <= 500
    assert all(box["right"] <= found["seen"] for box in found["boxes"])
    assert any(box["whole"] > 2 * box["seen"] for box in found["boxes"]), "there is a wide one"
    assert all(box["whole"] == box["seen"] for box in found["boxes"] if box["main"]), "the first one is of cards"
