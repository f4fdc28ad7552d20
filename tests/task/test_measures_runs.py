"""Metrics and confusion matrices of whole runs are those of the models that the runs hand out."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn

import descant as dc
from descant.data import Part
from descant.errors import SettingError
from descant.task import Task


def data_of(part: Part) -> dc.FederatedData:
    return dc.FederatedData(part, part, part)


def test_a_client_that_holds_one_class_is_left_out_of_the_mean_area() -> None:
    torch.manual_seed(0)
    part = Part(torch.randn(30, 3), torch.tensor([0, 1] * 10 + [1] * 10), torch.tensor([0, 10, 20, 30]))
    run = dc.simulate(Task(nn.Linear(3, 2), metric="auc"), data_of(part), dc.methods.Local(lr=0.1), rounds=2)
    areas = run.history.evaluated["personal"][2]["test_auc"]
    assert np.isnan(areas).tolist() == [False, False, True]
    figures = run.summary()
    assert figures["personal.test_auc.mean@last"] == pytest.approx(areas[:2].mean(), rel=1e-12)
    assert figures["personal.test_auc.worst_10@last"] == areas[:2].min()
    assert np.isfinite(figures["personal.test_loss.mean@last"])
    margin = run.personal(0)(part.client(0)[0]).detach()
    expected = sk.roc_auc_score(part.client(0)[1], margin[:, 1] - margin[:, 0])
    assert areas[0] == pytest.approx(expected, rel=1e-12)


def test_a_run_that_is_read_back_leaves_the_same_clients_out(tmp_path: Any) -> None:
    torch.manual_seed(0)
    part = Part(torch.randn(30, 3), torch.tensor([0, 1] * 10 + [1] * 10), torch.tensor([0, 10, 20, 30]))
    task = Task(nn.Linear(3, 2), metric="auc")
    run = dc.simulate(task, data_of(part), dc.methods.Local(lr=0.1), rounds=2, out=tmp_path / "run")
    assert dc.load(tmp_path / "run").summary() == pytest.approx(run.summary(), nan_ok=True)
    assert np.isfinite(run.summary()["personal.test_auc.mean@last"])


def test_the_matrix_of_a_run_is_that_of_its_models() -> None:
    torch.manual_seed(0)
    part = Part(torch.randn(60, 3), torch.randint(0, 4, (60,)), torch.tensor([0, 25, 25 + 30, 60]))
    task = Task(nn.Linear(3, 4))
    run = dc.simulate(task, data_of(part), dc.methods.Ditto(lr=0.5), rounds=2, chunk=2)
    matrices = run.confusion()
    assert matrices.shape == (3, 4, 4) and matrices.sum() == 60
    for k in range(3):
        inputs, labels = part.client(k)
        for model, module in (("personal", run.personal(k)), ("shared", run.shared())):
            expected = sk.confusion_matrix(labels, module(inputs).argmax(1), labels=range(4))
            assert np.array_equal(run.confusion(k, model), expected)
        assert np.array_equal(run.confusion(str(k)), matrices[k])
    accuracy = run.history.evaluated["personal"][2]["test_accuracy"]
    right = matrices.trace(axis1=1, axis2=2) / matrices.sum((1, 2))
    np.testing.assert_allclose(accuracy, right, rtol=1e-6)


def test_what_has_no_matrix(tmp_path: Any) -> None:
    part = Part(torch.randn(10, 3), torch.arange(10) % 2, torch.tensor([0, 5, 10]))
    none = Part(part.inputs[:0], part.targets[:0], torch.tensor([0, 0, 0]))
    data = dc.FederatedData(part, none, part, clients=("Ulm", "Bonn"))
    run = dc.simulate(Task(nn.Linear(3, 2)), data, dc.methods.Local(), rounds=1, out=tmp_path / "run")
    with pytest.raises(SettingError, match="there is no valid example to predict"):
        run.confusion(part="valid")
    with pytest.raises(SettingError, match="client = 2: it must be a name, or a number from 0 to 1"):
        run.confusion(2)
    with pytest.raises(SettingError, match="client = 'Ulmm': no client has this name; did you mean 'Ulm'"):
        run.confusion("Ulmm")
    with pytest.raises(SettingError, match="model = 'best': it must be 'personal' or 'shared'"):
        run.confusion(model="best")  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="no live models"):
        dc.load(tmp_path / "run").confusion()
    numbers = dc.FederatedData.from_arrays([(part.inputs.numpy(), part.inputs[:, 0].numpy())])
    run = dc.simulate(Task(nn.Linear(3, 1), "squared_error"), numbers, dc.methods.Local(), rounds=1)
    with pytest.raises(SettingError, match="the targets are numbers"):
        run.confusion()
