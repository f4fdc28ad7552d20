"""Linear layers, sized to the data."""

import numpy as np
import pytest
import torch

from descant.data import FederatedData
from descant.errors import TaskError
from descant.models import MODELS, linear, mlp, svm
from descant.task import Task


def data(shape: tuple[int, ...], classes: int | None, targets: tuple[int, ...] = ()) -> FederatedData:
    inputs = np.zeros((10, *shape), dtype=np.float32)
    labels = np.arange(10) % (classes or 1)
    values = labels if classes else np.zeros((10, *targets), dtype=np.float32)
    return FederatedData.from_arrays([(inputs, values)], classes=classes)


@pytest.mark.parametrize(
    ("name", "settings", "shape", "classes", "parameters"),
    [
        ("linear", {}, (60,), 10, 610),
        ("linear", {}, (28, 28), 10, 7850),
        ("mlp", {}, (784,), 10, 79_510),
        ("mlp", {"hidden": (100,)}, (1, 28, 28), 10, 79_510),
        ("mlp", {"hidden": (100, 100)}, (784,), 62, 94_862),
    ],
)
def test_sizes(
    name: str, settings: dict[str, tuple[int, ...]], shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    federation = data(shape, classes)
    model = MODELS[name](federation, **settings)
    assert Task(model).dim == parameters
    inputs, _ = federation.train.client(0)
    assert model(inputs).shape == (len(inputs), classes)


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    federation = data((4, 3), 5)
    torch.manual_seed(0)
    one = mlp(federation, hidden=())
    torch.manual_seed(0)
    other = linear(federation)
    inputs = torch.randn(6, 4, 3)
    assert torch.equal(one(inputs), other(inputs))
    torch.testing.assert_close(other(inputs + 2) - other(inputs), other(inputs * 0 + 2) - other(inputs * 0))


@pytest.mark.parametrize(("targets", "outputs"), [((), 1), ((3,), 3), ((2, 3), 6)])
def test_a_regression_predicts_as_many_numbers_as_the_target_has(targets: tuple[int, ...], outputs: int) -> None:
    model = linear(data((4,), None, targets))
    assert model(torch.zeros(2, 4)).shape == (2, outputs)


def test_relu_stands_between_linear_layers_only() -> None:
    kinds = [type(layer).__name__ for layer in mlp(data((2, 2), 3), hidden=(5, 6)).children()]
    assert kinds == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_an_svm_is_one_score_that_starts_at_zero(shape: tuple[int, ...]) -> None:
    model = svm(data(shape, 2))
    assert torch.equal(model(torch.ones(3, *shape)), torch.zeros(3, 1))
    with pytest.raises(TaskError, match="an svm tells two classes apart, and data 'arrays' has 3"):
        svm(data(shape, 3))
