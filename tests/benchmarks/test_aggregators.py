"""The benchmark of aggregators runs, and covers every aggregator. No test asserts a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from descant.aggregators import AGGREGATORS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_every_aggregator_has_its_row(importable: None) -> None:
    from aggregators import CASES  # type: ignore[import-not-found]

    made = {case.ours(2).name for case in CASES.values()}
    assert made == set(AGGREGATORS) and next(iter(CASES)) == "mean"


@pytest.mark.slow
def test_it_prints_its_table() -> None:
    command = [sys.executable, "aggregators.py", "--clients", "30", "--parameters", "200", "--turns", "1"]
    done = subprocess.run(
        [*command, "--no-byzfl", "--only", "mean", "krum", "k-loss"],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[3:]}
    assert list(rows) == ["mean", "krum", "k-loss"]
    for name, row in rows.items():
        assert float(row[1]) >= 0 and float(row[2]) >= 0, name


def test_what_fails_says_why_and_the_others_go_on(importable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import aggregators

    calls = {"descant": aggregators.Measured(1.0, 2.0), "byzfl": "no memory"}
    monkeypatch.setattr(aggregators, "apart", lambda library, *rest: calls[library])
    found = aggregators.contest("krum", 10, 20, 2, ["byzfl"])
    assert found == calls
    line = aggregators.row("krum", found, 0.5)
    assert "no memory" in line and line.split()[-1] == "2.0"
