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
    assert descant("theory", *settings, "--out", str(tmp_path / "figures"), cwd=tmp_path).status == 0  # replaced
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


@pytest.mark.parametrize(("format", "name"), [("html", "theory.html"), ("svg", "ditto-figure-1.svg")])
def test_files_of_others_are_spared_and_nothing_is_simulated_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, name: str
) -> None:
    def simulated(trials: int, seed: int) -> None:
        raise AssertionError("something was simulated")

    monkeypatch.setattr("descant.theory.checks.CHECKS", {"a check": simulated})
    (tmp_path / name).write_text("my notes")
    done = descant("theory", "--format", format, "-o", str(tmp_path), cwd=tmp_path)
    assert done.status == 2 and f"{name}' is there already" in done.err
    assert (tmp_path / name).read_text() == "my notes"
