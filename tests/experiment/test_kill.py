"""A run that is killed at any moment, and resumed, ends as the unbroken one: to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from safetensors.torch import load_file

import descant as dc
from descant.sealed import read_json
from tests.experiment.small import kept_models

KILLABLE = Path(__file__).with_name("killable.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "mode", "kills", "what"),
    [
        ("memory", "vmap", 20, "ditto"),
        ("disk", "vmap", 26, "ditto"),
        ("disk", "loop", 12, "ditto"),
        ("memory", "auto", 8, "ditto"),
        ("disk", "compile", 4, "ditto"),
        ("memory", "vmap", 12, "all parts"),
        ("disk", "vmap", 12, "all parts"),
    ],
)
def test_a_killed_and_resumed_run_is_the_unbroken_one(
    tmp_path: Path, store: str, mode: str, kills: int, what: str
) -> None:
    """At random times, around renames, at syncs, between a commit and its rows, among its rows."""
    command = [sys.executable, str(KILLABLE), str(tmp_path), store, str(kills), "7", mode, what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["killed"] == kills and report["most_kills_of_a_run"] > 1
    for number in range(report["runs"]):
        assert_same(tmp_path / f"run{number}", tmp_path / "unbroken")


def assert_same(folder: Path, unbroken: Path) -> None:
    found, expected = dc.load(folder), dc.load(unbroken)
    assert {**found.config, "execution": 0} == {**expected.config, "execution": 0}
    assert found.config["execution"]["mode"] == expected.config["execution"]["mode"]
    assert found.rounds.drop("seconds").equals(expected.rounds.drop("seconds"))
    assert found.clients.equals(expected.clients)
    assert found.health.equals(expected.health) and len(expected.health) > 0
    table = "federation.parquet"
    assert pl.read_parquet(folder / table).equals(pl.read_parquet(unbroken / table))
    summaries = [{k: v for k, v in run.summary().items() if k != "seconds"} for run in (found, expected)]
    assert summaries[0] == summaries[1]
    tensors, wanted = load_file(folder / "state.safetensors"), load_file(unbroken / "state.safetensors")
    assert set(tensors) == set(wanted) and all(tensors[name].equal(leaf) for name, leaf in wanted.items())
    assert kept_models(folder) == kept_models(unbroken) and len(kept_models(unbroken)) >= 2
    if expected.config["store"] == "disk":
        assert len(read_json(unbroken / "clients" / "leaves.json")[0]["leaves"]) > 0
        for file in [*(unbroken / "clients").iterdir(), *(unbroken / "held").glob("*")]:
            assert (folder / file.relative_to(unbroken)).read_bytes() == file.read_bytes(), file.name
    else:
        assert any(name.startswith("clients.") for name in wanted)
