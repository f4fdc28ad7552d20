"""The page of a table of robustness in a real browser, from a file, without a network."""

from __future__ import annotations

import re
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
