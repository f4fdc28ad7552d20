"""The probe names what a module, a loss or a metric cannot do, and which of them it is."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant.errors import SettingError, TaskError
from descant.execution import Mode, Vmap, choose
from descant.task import Metric, Task

HITS = Metric("hits", lambda outputs, targets: (outputs.argmax(1) == targets).float(), higher_is_better=True)


def vectors(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 4), torch.arange(n) % 3


def test_a_wrong_shape_is_named() -> None:
    with pytest.raises(TaskError, match=r"cannot be trained on examples of shape \(4,\): mat1 and mat2"):
        choose(Task(nn.Linear(5, 3)), *vectors(3))
    with pytest.raises(TaskError, match=r"examples of shape \(28, 28\)"):
        choose(Task(nn.Sequential(nn.Conv2d(3, 4, 3))), torch.zeros(3, 28, 28), torch.arange(3))


class Pair(nn.Linear):
    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input), input


class Doubling(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        input *= 2
        return super().forward(input)


def test_a_model_that_returns_something_else_or_changes_the_data_is_told_so() -> None:
    with pytest.raises(TaskError, match="the model returned a tuple: let its forward return one tensor"):
        choose(Task(Pair(4, 3)), *vectors(3))
    inputs, targets = vectors(3)
    before = inputs.clone()
    with pytest.raises(TaskError, match="the forward pass changes its inputs in place"):
        choose(Task(Doubling(4, 3)), inputs, targets)
    assert torch.equal(inputs, before)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda outputs: outputs, r"the loss fails on outputs of shape \(3, 3\) and .*: TypeError: .*1 positional"),
        (lambda outputs, targets: 1 / 0, "the loss fails on .*: ZeroDivisionError"),
        (lambda outputs, targets: 0.5, "the loss must return one number an example"),
        (lambda outputs, targets: None, "the loss must return one number an example"),
        (lambda outputs, targets: outputs.sum(1).detach(), "the loss has no gradient at the model's parameters"),
        (
            lambda outputs, targets: outputs.sum(1) * torch.rand(len(targets)),
            "the loss gives different numbers for the same outputs and targets",
        ),
    ],
)
def test_a_loss_that_cannot_be_trained_is_named_and_not_the_model(loss: Any, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        choose(Task(nn.Linear(4, 3), loss, HITS), *vectors(3))


@pytest.mark.parametrize("mode", ["vmap", "auto", "loop"])
def test_a_loss_that_is_not_a_number_at_the_start_is_called_so(mode: Mode) -> None:
    undefined: Any = lambda outputs, targets: (-outputs.square().sum(1) - 1).log()  # noqa: E731
    said = r"the loss is not a number \(NaN\) on the first 3 examples of a client, before any training"
    with pytest.raises(TaskError, match=said):
        choose(Task(nn.Linear(4, 3), undefined, HITS), *vectors(3), mode)

    class Undefined(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return (-super().forward(input).square() - 1).log()

    with pytest.raises(TaskError, match=r"the model's outputs are not a number \(NaN\)"):
        choose(Task(Undefined(4, 3)), *vectors(3), mode)


def test_a_loss_that_is_not_a_number_for_some_examples_vectorises() -> None:
    inputs, targets = vectors(3)
    partly: Any = lambda outputs, targets: outputs.square().sum(1) * (targets - 0.5).sqrt()  # noqa: E731
    assert isinstance(choose(Task(nn.Linear(4, 3), partly, HITS), inputs, targets, "vmap")[0], Vmap)


def test_a_setting_that_a_loss_or_a_metric_refuses_is_said_as_it_is() -> None:
    def refuses(*_: Any) -> Tensor:
        raise SettingError("margin = -1: it must be positive")

    with pytest.raises(SettingError, match=r"^margin = -1: it must be positive$"):
        choose(Task(nn.Linear(4, 3), refuses, HITS), *vectors(3))
    with pytest.raises(SettingError, match=r"^margin = -1: it must be positive$"):
        choose(Task(nn.Linear(4, 3), metric=Metric("mine", refuses, higher_is_better=True)), *vectors(3))


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            lambda outputs: outputs,
            r"the metric fails on outputs of shape \(3, 3\) and .*: TypeError: .*1 positional",
        ),
        (lambda outputs, targets: 0.5, "the metric must return one number an example"),
    ],
)
def test_a_metric_that_cannot_be_computed_is_named_and_not_the_model(of: Any, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        choose(Task(nn.Linear(4, 3), metric=Metric("mine", of, higher_is_better=True)), *vectors(3))
