"""The benchmark of Hush's rounds runs. No test asserts a time."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_prints_a_row_for_every_kind_beside_ditto() -> None:
    command = [sys.executable, "hush.py", "--quick", "--only", "mlp", "--modes", "vmap", "--turns", "1"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("x Ditto\n")[1].splitlines()
    assert [row.split("  ")[0] for row in table] == [
        *("Ditto", "Hush", "3 bits, m = d / 27", "Hush, m = d / 400"),
        *("the same, hash", "the same, hadamard"),
    ]
    assert table[0].endswith("1.00") and all(float(row.split()[-2]) > 0 for row in table)
