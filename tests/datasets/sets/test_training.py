"""The real data of natural clients can be trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import descant as dc
from descant.datasets import DATASETS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vehicle", "hapt", "heart-disease"])
def test_a_few_rounds_of_ditto_beat_the_most_frequent_label(real: Callable[[str], Path], name: str) -> None:
    real("har-hapt" if name == "hapt" else name)
    data = DATASETS[name]()
    features = int(torch.tensor(data.input_shape).prod())
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(features, data.classes or 1))
    method = dc.methods.Ditto(lr=0.02, steps=20, batch=10, solver=dc.methods.FedAvg(lr=0.02, steps=20, batch=10))
    run = dc.simulate(dc.Task(model), data, method, rounds=5, seed=0, mode="vmap")
    most = data.train.targets.bincount().argmax()
    guess = torch.tensor([(data.test.client(k)[1] == most).float().mean() for k in range(len(data))]).nanmean()
    figures = run.summary()
    assert figures["personal.test_accuracy.mean@last"] > float(guess) + 0.05
    assert figures["personal.train_loss.mean@last"] < torch.tensor(float(data.classes or 2)).log()


@pytest.mark.slow
def test_the_lstm_learns_to_write_shakespeare(real: Callable[[str], Path]) -> None:
    real("shakespeare-tff")
    pytest.importorskip("h5py")
    data = DATASETS["shakespeare-tff"](partition=dc.data.PARTITIONS["natural"](least=450))  # few, to be quick
    model = dc.models.MODELS["shakespeare-lstm"](data)
    method = dc.methods.FedAvg(lr=1.0, steps=10, batch=10, clip=5.0)
    tested = dc.Evaluation(every=3, parts=("test",))
    run = dc.simulate(dc.Task(model), data, method, rounds=3, cohort=2, seed=0, evaluate=tested, mode="loop")
    before, after = (run.history.figure("personal", t, "test_loss")["mean"] for t in (0, 3))
    assert after < before - 0.5
