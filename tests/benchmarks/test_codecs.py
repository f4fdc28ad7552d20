"""The benchmark of the codecs runs, and says how long messages are. No test asserts a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from descant.codecs import CODECS

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "codecs.py"


@pytest.mark.slow
def test_every_codec_has_a_row(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, str(PROGRAM), "--entries", "100000", "--times", "1", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert list(found["codecs"]) == list(CODECS) and found["copy"] > 0
    for name, row in found["codecs"].items():
        assert name in done.stdout and row["encode"] > 0 and row["decode"] > 0
    bits = {name: row["bits an entry"] for name, row in found["codecs"].items()}
    assert (bits["native"], bits["float32"], bits["float16"], bits["bfloat16"]) == (32, 32, 16, 16)
    assert bits["sign"] == 1 + 32 / 100_000 and bits["random-k"] == 0.32
    assert bits["sketch"] == 32 * (5 * 0.02 + 0.01)
    assert 3 < bits["qsgd"] < 4.2 and 0.4 < bits["top-k"] < 0.41


@pytest.mark.slow
def test_an_unknown_codec_is_refused_by_name() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), "--only", "qsdg"], capture_output=True, text=True)
    assert done.returncode == 2 and "there is no codec qsdg; known: native" in done.stderr
