"""The page in a real browser, from a file, without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

import descant as dc
from descant.report import Report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here (Debian: apt install chromium)")
OFFLINE = ["--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9"]


def opened(page: Path, profile: Path, width: int = 800) -> tuple[str, list[str]]:
    """The page as it stands after its scripts have run in a window, and what was said on the console."""
    assert BROWSER is not None
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={profile}",
        f"--window-size={width},3000",
    ]
    command = [BROWSER, *options, *OFFLINE, "--virtual-time-budget=60000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def panels(dom: str) -> list[str]:
    """What stands in the place of each chart."""
    return re.findall(r'<div class="panel[ "].*?(?=<div class="panel[ "]|<figcaption)', dom, flags=re.DOTALL)


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("which", ["folder", "collapsed", "regression"])
def test_every_chart_is_drawn_and_nothing_is_complained_about(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report = request.getfixturevalue("regression") if which == "regression" else None
    report = report or Report.of(request.getfixturevalue(which))
    [page] = report.save(tmp_path / "report.html")
    dom, said = opened(page, tmp_path / "profile")
    wanted = sum(len(figure.panels) for figures in report.figures.values() for figure in figures)
    assert wanted >= 4
    assert f'data-drawn="{wanted}"' in dom, said
    assert said == []
    for drawn in panels(dom):
        assert 'data-drawn="yes"' in drawn and "<svg" in drawn
        assert re.search(r'class="mark-(line|area|symbol|rect|rule)', drawn), "there is something in it"
        assert re.search(r'aria-label="(X|Y)-axis', drawn), "with axes"
    assert len(panels(dom)) == wanted


@pytest.fixture
def regression() -> Report:
    """One run whose metric is better where it is lower, without labels and without a shared model."""
    draw = np.random.default_rng(0)
    inputs = [draw.normal(size=(20, 4)).astype("float32") for _ in range(6)]
    data = dc.FederatedData.from_arrays([(x, x.sum(1, keepdims=True)) for x in inputs])
    task = dc.Task(dc.models.linear(data), loss="squared_error")
    return dc.simulate(task, data, dc.methods.Local(steps=2), rounds=3).report()


SCRIPT = """
<script>
(async () => {
  while (!document.documentElement.dataset.drawn) await new Promise((next) => setTimeout(next, 50));
  const counted = () => document.querySelectorAll("#synthetic-accuracy .mark-line path").length;
  const shown = () => document.querySelectorAll("#synthetic-accuracy-clients .panel:not([hidden])").length;
  const before = [counted(), shown()];
  document.querySelector('.legend [data-method="together"]').click();
  await new Promise((next) => setTimeout(next, 500));
  const after = [counted(), shown()];
  const table = document.querySelector("[data-rule] table");
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "bytes up");
  const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.value));
  table.tHead.rows[0].cells[column].querySelector("button").click();
  const falling = values();
  table.tHead.rows[0].cells[column].querySelector("button").click();
  const rising = values();
  document.querySelector('[data-tab="best_on_test"]').click();
  const parts = [...document.querySelectorAll("[data-rule]")];
  const tab = parts.filter((part) => !part.hidden).map((part) => part.dataset.rule);
  document.title = JSON.stringify({ before, after, falling, rising, tab });
})();
</script>
"""


@pytest.mark.slow
@in_browser
def test_methods_can_be_hidden_tables_sorted_and_rounds_chosen(folder: Path, tmp_path: Path) -> None:
    [page] = Report.of(folder).save(tmp_path / "report.html")
    before, after = page.read_text(encoding="utf-8").rsplit("</body>", 1)
    page.write_text(f"{before}{SCRIPT}</body>{after}", encoding="utf-8")
    dom, said = opened(page, tmp_path / "profile")
    found = re.search(r"<title>(.*?)</title>", dom)
    assert found is not None and said == []
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["before"] == [3, 3] and seen["after"] == [2, 2]
    assert seen["falling"] == sorted(seen["rising"], reverse=True) and seen["rising"] == sorted(seen["rising"])
    assert seen["tab"] == ["best_on_test"]


BOXES = """
<script>
(async () => {
  while (!document.documentElement.dataset.drawn) await new Promise((next) => setTimeout(next, 50));
  const box = (one) => one.getBoundingClientRect().toJSON();
  const texts = [...document.querySelectorAll(".panel p, .panel .role-title text")];
  const found = texts.map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return { text: one.textContent, letters: box(range), panel: box(one.closest(".panel")) };
  });
  document.title = JSON.stringify({ width: window.innerWidth, found });
})();
</script>
"""


@pytest.mark.slow
@in_browser
def test_long_names_of_panels_break_where_the_page_is_narrow(folder: Path, tmp_path: Path) -> None:
    runs = [dc.load(path.parent) for path in sorted(folder.glob("*/run.json"))]
    for run in runs:
        run.config["label"] += ", with a label that says all of its settings, and then some more of them"
    [page] = Report(runs).save(tmp_path / "report.html")
    before, after = page.read_text(encoding="utf-8").rsplit("</body>", 1)
    page.write_text(f"{before}{BOXES}</body>{after}", encoding="utf-8")
    dom, _ = opened(page, tmp_path / "profile", width=400)
    told = re.search(r"<title>(.*?)</title>", dom)
    assert told is not None
    seen = json.loads(unescape(told[1]))
    assert seen["width"] <= 500, "some browsers have no narrower window"
    assert {run.config["label"] for run in runs} <= {one["text"] for one in seen["found"]}, "whole, and not cut"
    for one in seen["found"]:
        letters, panel = one["letters"], one["panel"]
        assert letters["left"] >= panel["left"] - 1 and letters["right"] <= panel["right"] + 1, one
        assert letters["bottom"] > letters["top"]


def test_the_page_begins_with_the_verdict(page: str) -> None:
    assert page.index('class="verdict"') < page.index("data-rule=")


def test_the_page_asks_for_nothing_outside_itself(page: str) -> None:
    head = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # code that draws, and asks for nothing
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)""", head)
    assert "@import" not in page and "url(" not in head
    assert len(page) - len(head) > 500_000, "Vega and its like are in it"


def test_names_are_shown_and_never_obeyed(page: str) -> None:
    assert "</script><b>" not in page
    assert "&lt;/script&gt;&lt;b&gt;&amp;" in page
    assert page.count("<script") == page.count("</script>") == 3


def test_settings_and_the_first_moment_are_there_without_scripts(page: str) -> None:
    assert "<h1>A comparison of three</h1>" in page
    assert "everything the run followed from" in page and "weight_decay: 0.0" in page
    assert "personal.test_accuracy.worst_10@chosen_on_valid" in page


def test_panels_are_named_above_their_charts_in_full(folder: Path, labels: list[str]) -> None:
    report = Report.of(folder)
    page = report.html()
    for label in labels:
        assert f"<p>{escape(label)}</p>" in page
    specs = json.loads(re.search(r'<script type="application/json" id="specs">(.*?)</script>', page)[1])  # type: ignore[index]
    assert specs and not any("title" in spec for spec in specs.values())
    [small] = [figure for figure in report.figures["synthetic"] if figure.key == "accuracy-clients"]
    assert all(panel.to_dict()["title"]["text"] in labels for panel in small.panels), (
        "a file's figure keeps its own"
    )
