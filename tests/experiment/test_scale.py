"""A hundred thousand clients in the memory of a laptop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.mark.slow
def test_a_hundred_thousand_clients_take_less_than_a_gibibyte(tmp_path: Path) -> None:
    """Data and state are mapped: what counts is RssAnon, from making the data to saving the run, torch included."""
    command = [sys.executable, str(SCALE), "--one", "--clients", "100000", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 100 < json.loads(done.stdout)["peak_rss_anon"] < 1024  # MiB
