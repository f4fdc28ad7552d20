"""`descant theory`, as a person or a program uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bad_input.calling import descant


@pytest.mark.slow
def test_theory_for_programs_leaves_pictures_and_a_page_that_needs_nothing_besides_itself(tmp_path: Path) -> None:
    settings = ("--trials", "100", "--seed", "2", "--json", "-q", "--format", "svg", "--format", "html")
    done = descant("theory", *settings, "--out", str(tmp_path / "figures"), cwd=tmp_path)
    assert done.status == 0, done.out + done.err
    found = json.loads(done.out)
    assert found["trials"] == 100 and found["seed"] == 2
    assert all(row["agrees"] for row in found["closed_forms"])
    assert {claim["paper"] for claim in found["statements"]} == {"Ditto", "lp-proj", "FLAME", "Fed+"}
    assert {False, True} == {claim["holds"] for claim in found["statements"]}
    written = sorted((tmp_path / "figures").iterdir())
    assert sorted(found["figures"]) == [str(path) for path in written]
    assert [path.suffix for path in written].count(".svg") == 6 and not done.err
    page = (tmp_path / "figures" / "theory.html").read_text()
    assert "Proposition 3" in page and not re.search(r"<(script|link)[^>]+(src|href)=", page)


@pytest.mark.slow
def test_theory_prints_tables(tmp_path: Path) -> None:
    done = descant("theory", "--trials", "100", cwd=tmp_path)
    assert done.status == 0, done.out + done.err
    assert "Closed forms and simulations (100 trials)" in done.out and "DISAGREE" not in done.out
    assert "threshold 2 lambda*_1" in done.out and "closed forms agree" in done.out
    assert (tmp_path / "runs" / "theory" / "theory.html").is_file()


def test_too_few_trials_are_refused(tmp_path: Path) -> None:
    done = descant("theory", "--trials", "5", cwd=tmp_path)
    assert done.status == 2 and "--trials" in done.err and "Traceback" not in done.err
