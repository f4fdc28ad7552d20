"""The benchmark of projections runs, for every kind. No test asserts a time."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_prints_a_row_for_every_kind_at_every_size() -> None:
    command = [sys.executable, "projections.py", "--quick", "--memory", "0.2"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    sizes = done.stdout.split("dim = ")[1:]
    assert len(sizes) == 4
    for kind in (
        "dense",
        "orthogonal",
        "block-diagonal",
        "per-layer",
        "sparse-sign",
        "hash",
        "fold",
        "hadamard",
        "seed-only",
    ):
        assert all(f"\n{kind}" in table for table in sizes), kind
    assert "to make: not tried" in done.stdout, "an orthogonal matrix of 217,976 columns"
