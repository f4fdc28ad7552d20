"""The benchmark runs, and the loop that it measures against trains the same model. No test asserts a time."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import descant as dc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.slow
def test_speed_prints_its_table_and_writes_its_results(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "speed.py", "--quick", "--only", "a", "--no-pfl", "--results", str(results)]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for word in ("client-steps/s", "logistic 60-10", "descant auto", "plain PyTorch loop"):
        assert word in done.stdout
    contenders = json.loads(results.read_text())["cases"]["a"]["contenders"]
    assert set(contenders) == {"descant auto", "plain PyTorch loop"}
    for contender in contenders.values():
        assert contender["failed"] is None
        assert contender["client_steps_per_second"] > 0
    assert contenders["plain PyTorch loop"]["ratio_to_plain_loop"] == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["a", "e"])
def test_the_plain_loop_and_fedavg_reach_the_same_model_on_full_batches(
    importable: None, tmp_path: Path, key: str
) -> None:
    from peers.plain_loop import train_round
    from speed_descant import fedavg, federation
    from speed_shapes import SHAPES, first_model, read_data, write_data

    shape = replace(SHAPES[key], clients=4, cohort=4, samples=12, batch=12, epochs=3, lr=0.1)
    write_data(shape, tmp_path)
    inputs, targets = read_data(shape, tmp_path)
    plain = first_model(shape)
    for _ in range(3):
        train_round(plain, inputs, targets, shape)
    task = dc.Task(first_model(shape))
    run = dc.simulate(task, federation(inputs, targets, shape), fedavg(shape), rounds=3)
    for ours, theirs, start in zip(
        run.shared().parameters(), plain.parameters(), task.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(theirs, start, rtol=1e-3)


@pytest.mark.slow
def test_a_contender_that_fails_says_why_and_the_others_run(importable: None, tmp_path: Path) -> None:
    from speed_contest import Contender, Effort, contest
    from speed_shapes import SHAPES, write_data

    write_data(SHAPES["a"], tmp_path)
    contenders = [
        Contender("absent", "peers.no_such_peer"),
        Contender("plain", "peers.plain_loop"),
        Contender("not here", "peers.plain_loop", unavailable="no network"),
    ]
    absent, plain, not_here = contest(contenders, "a", tmp_path, threads=1, effort=Effort(seconds=0.0, rounds=1))
    assert "no_such_peer" in absent.failed and not absent.seconds
    assert not plain.failed and plain.seconds
    assert not_here.failed == "no network" and not not_here.seconds
