"""Labels that come as a column, as from a data frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from descant import FederatedData, Task, simulate
from descant.data.part import Part
from descant.errors import TaskError
from descant.methods import Local
from descant.task.objectives import accuracy

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def flat() -> FederatedData:
    return FederatedData.from_arrays({"a": (X, Y), "b": (-X, 1 - Y)})


def test_a_column_of_labels_is_the_same_data_and_gives_the_same_figures() -> None:
    column = FederatedData.from_arrays({"a": (X, Y[:, None]), "b": (-X, 1 - Y[:, None])})
    assert column.fingerprint == flat().fingerprint and column.classes == 2
    torch.manual_seed(0)
    task = Task(torch.nn.Linear(4, 2))
    figures = [simulate(task, data, Local(lr=0.5, steps=20), rounds=5).summary() for data in (flat(), column)]
    name = "personal.test_accuracy.mean@last"
    assert figures[0][name] == figures[1][name] > 0.8


def test_a_column_from_a_dataset_and_from_parts() -> None:
    dataset = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y[:, None]))
    assert FederatedData.from_datasets(dataset, np.arange(60) % 2).train.targets.ndim == 1
    parts = {"train": (X, Y[:, None]), "test": (X, Y)}
    data = FederatedData.from_arrays({"a": parts})
    assert data.train.targets.shape == (60,) == data.test.targets.shape


def test_a_column_of_numbers_stays_a_regression_as_it_came() -> None:
    data = FederatedData.from_arrays({"a": (X, X[:, :1])})
    assert data.train.targets.ndim == 2 and data.classes is None


def test_sequences_keep_their_axis() -> None:
    part = Part(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 2]))
    assert part.without_column() is part


def test_accuracy_compares_row_by_row_and_never_spreads() -> None:
    scores = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([1, 1, 1])
    assert accuracy(scores, labels[:, None]).tolist() == accuracy(scores, labels).tolist() == [1, 0, 1]
    assert accuracy(scores[:, None], labels).tolist() == [1, 0, 1]
    with pytest.raises(TaskError, match=r"a row of class scores for each label"):
        accuracy(scores, torch.ones(3, 4, dtype=torch.int64))
