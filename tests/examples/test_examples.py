"""The examples run as a newcomer runs them, and what they say is so."""

from __future__ import annotations

import io
import re
import runpy
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
import torch

import descant as dc
from descant.experiment.settings import RunSettings, read_settings

EXAMPLES = Path(__file__).parents[2] / "examples"


def python(name: str, *arguments: str, cwd: Path) -> str:
    """What `python name arguments` prints."""
    out, path = io.StringIO(), str(EXAMPLES / name)
    with chdir(cwd), mock.patch.object(sys, "argv", [path, *arguments]), redirect_stdout(out):
        runpy.run_path(path, run_name="__main__")
    return out.getvalue()


@pytest.mark.slow
def test_own_model_trains_and_leaves_a_run_that_read_results_reads(tmp_path: Path) -> None:
    said = python("own_model.py", cwd=tmp_path)
    figures = dc.load(tmp_path / "runs" / "own-model").summary()
    accuracy = figures["personal.test_accuracy.mean@chosen_on_valid"]
    assert f"accuracy, mean over wards: {accuracy:.3f}" in said and accuracy > 0.85
    read = python("read_results.py", "runs/own-model", cwd=tmp_path)
    assert "ditto: the worst-served clients" in read and re.search(r"better .* for \d of 8 clients", read)


@pytest.mark.slow
def test_read_results_finds_the_worst_clients_and_what_a_byte_buys(tmp_path: Path) -> None:
    said = python("read_results.py", cwd=tmp_path)
    run = dc.load(tmp_path / "runs" / "read-results" / "fedavg")
    last = run.clients.filter(round=15)
    worst = last.sort("test_accuracy", "client").row(0, named=True)
    row = rf"│ {worst['client']} +┆ {worst['test_accuracy']:.6}"
    assert re.search(rf"fedavg: the worst-served clients\n[^│]*│[^│]*│\n[^│]*{row}", said)
    assert re.search(r"mean accuracy 0.9: lp-proj \d+ kB", said)


@pytest.mark.slow
def test_the_new_method_is_compared_with_local_training(tmp_path: Path) -> None:
    said = python("new_method.py", cwd=tmp_path)
    assert re.search(r"local +accuracy 0\.9\d\d, 0 kB up", said)
    # 10 of 20 clients send 650 numbers of 4 bytes in each of 20 rounds
    assert re.search(r"mean-regularized +accuracy 0\.9\d\d, 520 kB up", said)


def test_the_new_method_trains_and_shares_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from new_method import MeanRegularized

    data = dc.data.synthetic(clients=8, samples=40)
    run = dc.simulate(dc.Task(dc.models.linear(data)), data, MeanRegularized(lam=0.1, steps=5), rounds=10)
    before, after = (run.history.figure("personal", t, "train_loss")["mean"] for t in (0, 10))
    assert after < before
    mean = torch.stack([run.personal(k, round="last")[0].weight for k in range(8)]).mean(0)  # type: ignore[index]
    assert run.shared(round="last")[0].weight.allclose(mean, atol=1e-6)  # type: ignore[index]


def test_the_new_method_is_named_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    settings = RunSettings.of(read_settings(EXAMPLES / "new_method.yaml", ["rounds=1"]))
    run = settings.execute()
    assert run.config["method"]["name"] == "new_method:MeanRegularized" and run.summary()["rounds"] == 1
