"""Robust aggregators in runs: under methods that send vectors, in settings, committed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import descant as dc
from descant.aggregators import AGGREGATORS, Chain, CoordinateMedian, NearestNeighborMixing, TrimmedMean
from descant.engine import Record, RoundRecord
from descant.errors import SettingError
from descant.experiment.settings import RunSettings
from descant.methods import FLAME, Ditto, FedAvg, LpProj, Method

LOCAL: dict[str, Any] = {"steps": 2, "batch": 4, "lr": 0.1}
AVG = FedAvg(**LOCAL)
METHODS: list[Method] = [AVG, Ditto(solver=AVG, **LOCAL), LpProj(dim=5, **LOCAL), FLAME(**LOCAL)]


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    clients = []
    for k in range(12):
        g = torch.Generator().manual_seed(k)
        x = torch.randn(20, 4, generator=g, dtype=torch.float64)
        clients.append((x, (x @ torch.eye(4, 3, dtype=torch.float64)).argmax(1)))
    return dc.FederatedData.from_arrays(clients, classes=3)


@pytest.fixture(scope="module")
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(nn.Linear(4, 3).double())


@pytest.mark.few(10)
@pytest.mark.parametrize("name", sorted(set(AGGREGATORS) - {"k-loss"}))
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_aggregator_works_under_every_method_that_sends_vectors(
    task: dc.Task, data: dc.FederatedData, method: Method, name: str
) -> None:
    run = dc.simulate(task, data, method, rounds=3, cohort=9, aggregator=name, evaluate=3, mode="vmap")
    assert run.collapse is None and np.isfinite(run.summary()["personal.test_loss.mean@last"])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "aggregator",
    [
        "trimmed-mean",
        "krum",
        "multi-krum",
        "norm-clipping",
        "k-norm",
        ["nnm", "trimmed-mean"],
        ["bucketing", "krum"],
    ],
    ids=str,
)
def test_a_defence_withstands_what_breaks_the_mean(task: dc.Task, data: dc.FederatedData, aggregator: Any) -> None:
    flip = {"name": "sign-flip", "tau": 50.0}
    how: dict[str, Any] = {"rounds": 15, "evaluate": 15, "mode": "vmap", "attacks": flip, "malicious": 2}
    broken = dc.simulate(task, data, AVG, **how)
    defended = dc.simulate(task, data, AVG, aggregator=aggregator, **how)
    accuracy = "personal.test_accuracy.mean@last"
    assert broken.collapse is not None or broken.summary()[accuracy] < 0.6
    assert defended.summary()[accuracy] > 0.75


def test_several_in_a_row_are_a_list_in_settings_and_come_back_from_the_folder(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path
) -> None:
    listed = [{"name": "nnm", "f": 2}, "centered-clipping"]
    how: dict[str, Any] = {"rounds": 5, "cohort": 9, "mode": "vmap", "aggregator": listed, "commit": 1}

    def interrupt(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == 3:
            raise KeyboardInterrupt

    unbroken = dc.simulate(task, data, AVG, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task, data, AVG, out=tmp_path / "run", progress=interrupt, **how)
    assert dc.resume(tmp_path / "run", task, data).clients.equals(unbroken.clients)
    named = [step["name"] for step in dc.load(tmp_path / "run").config["aggregator"]]
    assert named == ["nnm", "centered-clipping"] and unbroken.config["aggregator"][0]["f"] == 2
    values = {"data": "digits", "method": "fedavg", "rounds": 1, "aggregator": ["nnm", "trimmed-mean"]}
    settings = RunSettings.of(values)
    assert settings.aggregator == Chain(steps=(NearestNeighborMixing(), TrimmedMean()))


@pytest.mark.parametrize(
    ("aggregator", "words"),
    [
        (["krum", "mean"], "aggregator.*not 'krum'"),
        ([], "aggregator.*at least one"),
        (["nnm", "medain"], r"aggregator\[1\]"),
        ({"name": "krum", "f": 1.5}, "f = 1.5"),
        ({"name": "krum", "convention": "mine"}, "convention"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(
    task: dc.Task, data: dc.FederatedData, aggregator: Any, words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        dc.simulate(task, data, AVG, rounds=1, aggregator=aggregator)


def test_bucketing_before_a_median_is_the_median_of_means(task: dc.Task, data: dc.FederatedData) -> None:
    """With buckets of one it is the median itself, and with one bucket the mean."""
    how: dict[str, Any] = {"rounds": 2, "evaluate": 2, "mode": "vmap"}
    plain = FedAvg(weighted=False, **LOCAL)
    ones, median = (
        dc.simulate(task, data, plain, aggregator=a, **how)
        for a in ([{"name": "bucketing", "size": 1}, "coordinate-median"], CoordinateMedian())
    )
    whole, mean = (
        dc.simulate(task, data, plain, aggregator=a, **how)
        for a in ([{"name": "bucketing", "size": 99}, "coordinate-median"], "mean")
    )
    for ours, theirs in ((ones, median), (whole, mean)):
        a, b = (
            np.array([p.detach().numpy().ravel() for p in run.shared().parameters()], object)
            for run in (ours, theirs)
        )
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
