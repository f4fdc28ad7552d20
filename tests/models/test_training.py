"""Every model trains: a round of FedAvg is the mean of plain gradient steps."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.catalog import build
from descant.models import MODELS

Make = Callable[..., Any]

SLOW = ("resnet18", "resnet34")
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], int, dict[str, Any]]] = {
    # settings, shape, classes, kind of data
    "linear": ({}, (6,), 3, {}),
    "mlp": ({}, (6,), 3, {}),
    "svm": ({}, (6,), 2, {}),
    "cnn": ({"channels": [4], "kernels": [3]}, (8, 8), 3, {}),
    "lstm": ({"hidden": 8}, (5,), 7, {"tokens": 7, "each": True}),
    "resnet18": ({"small_images": True}, (3, 8, 8), 10, {}),
    "resnet34": ({}, (3, 32, 32), 10, {}),
    "lp-proj-mnist": ({}, (784,), 10, {}),
    "lp-proj-emnist": ({}, (784,), 62, {}),
    "lp-proj-cifar": ({}, (3, 32, 32), 10, {}),
    "lp-proj-fashion": ({}, (1, 28, 28), 10, {}),
    "flame-mlp": ({}, (28, 28), 10, {}),
    "flame-cifar": ({}, (3, 32, 32), 10, {}),
    "flame-medical": ({}, (3, 64, 64), 6, {}),
    "flame-femnist": ({}, (28, 28), 62, {}),
    "ditto-fashion": ({}, (28, 28), 10, {}),
    "ditto-femnist": ({}, (28, 28), 62, {}),
    "ditto-celeba": ({}, (3, 84, 84), 2, {}),
    "fedplus-sent140": ({}, (25, 300), 2, {}),
    "shakespeare-lstm": ({}, (20,), 30, {"tokens": 30}),
}


def test_no_model_is_forgotten() -> None:
    assert set(CASES) == set(MODELS)


def stepped(model: nn.Module, inputs: Tensor, targets: Tensor, loss: str) -> dict[str, Tensor]:
    """One gradient step on all examples, in plain torch."""
    own = deepcopy(model).train()
    outputs = own(inputs)
    if loss == "hinge":
        value = (1 - (2 * targets - 1) * outputs[:, 0]).clamp(min=0).mean()
    else:
        value = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    value.backward()
    torch.optim.SGD(own.parameters(), lr=0.1).step()
    return {name: tensor for name, tensor in own.state_dict().items() if tensor.is_floating_point()}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_a_round_is_the_mean_of_the_clients_gradient_steps(make: Make, name: str) -> None:
    settings, shape, classes, kind = CASES[name]
    data = make(shape, classes, clients=2, **kind)
    torch.manual_seed(0)
    model = build("models", {"name": name} | settings, data)
    loss = "hinge" if name == "svm" else "cross_entropy"
    before = {n: tensor.clone() for n, tensor in model.state_dict().items()}
    method = dc.methods.FedAvg(lr=0.1, steps=1, batch=None)
    run = dc.simulate(dc.Task(model, loss), data, method, rounds=1, mode="loop")
    after = run.shared().state_dict()
    drops = any(isinstance(module, nn.Dropout) for module in model.modules())
    if drops:  # its masks are the run's own
        assert all(not torch.equal(after[n], before[n]) for n, _ in model.named_parameters())
        assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())
    else:
        clients = [stepped(model, *data.train.client(k), loss) for k in range(2)]
        mean = {n: (clients[0][n] + clients[1][n]) / 2 for n in clients[0]}
        torch.testing.assert_close({n: after[n] for n in mean}, mean, rtol=1e-4, atol=1e-5)
    assert 0 <= run.summary()["personal.test_accuracy.mean@last"] <= 1
