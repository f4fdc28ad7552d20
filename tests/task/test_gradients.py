"""Gradients of K clients at once, against plain autograd on a copy of the user's module."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from descant.execution import Execution, Loop, Vmap, choose
from descant.task import Batch, Predict, Task

Helper = Callable[..., Any]
SIZES = (5, 3, 1)  # of ragged clients


class Mean(nn.Module):
    """The mean over a sequence's positions."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(1)


def tokens(n: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 11, (n, 7)), torch.randint(0, 3, (n,))


def sequences(n: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 11, (n, 7)), torch.randint(0, 3, (n, 7))


def vectors(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 6, dtype=torch.float64), torch.randint(0, 3, (n,))


def images(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2, 8, 8, dtype=torch.float64), torch.randint(0, 3, (n,))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, Tensor]]]] = {
    "linear": (lambda: nn.Linear(6, 3), vectors),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), vectors),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(4, 3),
        ),
        images,
    ),
    "layernorm": (lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3)), vectors),
    "groupnorm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)),
        images,
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 5), Mean(), nn.Linear(5, 3)), tokens),
    "sequence": (lambda: nn.Sequential(nn.Embedding(11, 5), nn.Tanh(), nn.Linear(5, 3)), sequences),
}  # fmt: skip


@pytest.fixture(params=MODELS)
def problem(request: pytest.FixtureRequest) -> tuple[Task, list[tuple[Tensor, Tensor]]]:
    """A task in float64, and the examples of three ragged clients."""
    torch.manual_seed(0)
    model, examples = MODELS[request.param]
    return Task(model().double()), [examples(n) for n in SIZES]


def test_gradients_are_those_of_plain_autograd(
    problem: tuple[Task, list[tuple[Tensor, Tensor]]], padded: Helper, plain: Helper, grads: Helper, around: Helper
) -> None:
    task, clients = problem
    x = around(task.start(), len(clients))
    vmapped, _ = choose(task, *clients[0], mode="vmap")
    for execution in (vmapped, Loop(task)):
        gradients, _ = grads(execution, x, padded(clients))
        for k, examples in enumerate(clients):
            expected, _ = plain(task.model, x[k], examples)
            torch.testing.assert_close(gradients[k], expected, rtol=1e-10, atol=1e-12)


def test_predictions_are_those_of_the_deployed_module(
    problem: tuple[Task, list[tuple[Tensor, Tensor]]], padded: Helper, around: Helper
) -> None:
    task, clients = problem
    x, inputs = around(task.start(), len(clients)), padded(clients).inputs
    for execution in (Vmap(task), Loop(task)):
        outputs = execution.outputs(x, torch.empty(len(x), 0), inputs)
        for k in range(len(x)):
            torch.testing.assert_close(outputs[k], task.module(x[k])(inputs[k]), rtol=1e-10, atol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["linear", "mlp", "cnn"])
@given(pad=st.floats(-(2.0**99), 2.0**99, width=32))
def test_whatever_stands_in_a_padded_row_changes_not_a_bit(
    name: str, pad: float, padded: Helper, grads: Helper
) -> None:
    torch.manual_seed(0)
    model, examples = MODELS[name]
    task = Task(model())
    clients = [(inputs.float(), targets) for inputs, targets in map(examples, SIZES)]
    x = task.start().repeat(len(clients), 1)
    for execution in (Vmap(task), Loop(task)):
        zero, _ = grads(execution, x, padded(clients))
        same, _ = grads(execution, x, padded(clients, pad))
        assert torch.equal(same, zero)


def test_a_client_without_any_example_in_the_batch_has_no_gradient(grads: Helper) -> None:
    task = Task(nn.Linear(6, 3))
    inputs, targets = torch.randn(2, 4, 6), torch.zeros(2, 4, dtype=torch.int64)
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    gradients, _ = grads(Vmap(task), task.start().repeat(2, 1), Batch(inputs, targets, mask, torch.arange(2)))
    assert gradients[0].abs().max() > 0
    assert torch.equal(gradients[1], torch.zeros(task.dim))


@pytest.mark.parametrize("make", [Vmap, Loop])
def test_the_clients_that_are_at_work_do_not_notice_the_others(
    make: Callable[[Task], Execution], padded: Helper, grads: Helper
) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(6, 3).double())
    batch = padded([vectors(n) for n in SIZES])
    x, none = task.start().repeat(3, 1), torch.empty(3, 0)
    everyone, _ = grads(make(task), x, batch)
    active = torch.tensor([True, False, True])
    some, _ = make(task).grads(x, none, batch, active, task.objective, ())
    torch.testing.assert_close(some[active], everyone[active], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("make", [Vmap, Loop])
def test_an_objective_gets_its_clients_row_of_what_the_method_hands_along(
    make: Callable[[Task], Execution], padded: Helper, grads: Helper, around: Helper
) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(6, 3).double())
    clients = [vectors(n) for n in SIZES]
    x, batch = around(task.start(), 3), padded(clients)
    w, lam = torch.randn(3, task.dim, dtype=torch.float64), torch.tensor([0.0, 1.0, 10.0], dtype=torch.float64)

    def proximal(predict: Predict, x: Tensor, batch: Batch, w: Tensor, lam: Tensor) -> Tensor:
        return predict.loss(x) + lam / 2 * (x - w).square().sum()

    gradients, _ = grads(make(task), x, batch, w, lam, objective=proximal)
    expected = grads(make(task), x, batch)[0] + lam[:, None] * (x - w)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [Vmap, Loop])
def test_an_objective_may_look_at_several_predictions(
    make: Callable[[Task], Execution], padded: Helper, grads: Helper, around: Helper
) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(6, 3).double())
    x, batch = around(task.start(), 2), padded([vectors(4), vectors(4)])
    anchor = around(task.start(), 2) * 0.5

    def distance(predict: Predict, x: Tensor, batch: Batch, anchor: Tensor) -> Tensor:
        return (predict(x) - predict(anchor)).square().sum() / 2

    gradients, _ = grads(make(task), x, batch, anchor, objective=distance)
    for k in range(2):
        z = torch.cat([batch.inputs[k], torch.ones(4, 1, dtype=torch.float64)], 1)  # outputs are W z
        gap = x[k] - anchor[k]
        W = torch.cat([gap[:18].view(3, 6), gap[18:, None]], 1)
        by_hand = W @ z.T @ z
        torch.testing.assert_close(
            gradients[k], torch.cat([by_hand[:, :6].flatten(), by_hand[:, 6]]), rtol=1e-10, atol=1e-12
        )
