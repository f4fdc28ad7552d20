"""Losses and metrics, one number an example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from descant.errors import SettingError, TaskError, require, unknown

PerExample = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> [B]


@dataclass(frozen=True)
class Metric:
    """A figure of one example; a client's figure is the mean over its examples."""

    name: str
    of: PerExample
    higher_is_better: bool

    def __post_init__(self) -> None:
        require(self, "name", self.name != "loss", "another name than that of the loss's own figures")


def _by_example(values: Tensor) -> Tensor:
    """The mean over whatever lies behind the example axis (a sequence's positions, several outputs)."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of class scores [B, C], or of [B, T, C] for sequences (the mean over T)."""
    losses = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
    return _by_example(losses.view(targets.shape))


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error of an example's outputs; outputs [B, 1] go with targets [B]."""
    return _by_example((outputs.reshape(targets.shape) - targets).square())


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    """max(0, 1 - y s) of one score s an example; y is 1 for the label 1, and -1 for the label 0 (or -1)."""
    scores = _one_score(outputs, targets)
    return functional.relu(1 - torch.where(targets > 0, scores, -scores))


def sign_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the score of an example is positive just where its label is; one that is NaN is wrong."""
    scores = _one_score(outputs, targets)
    return (((scores > 0) == (targets > 0)) & ~scores.isnan()).to(outputs.dtype)


def _one_score(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() != 1 or outputs.numel() != targets.numel():
        raise TaskError(
            f"the loss 'hinge' needs one score an example (as the model svm gives), and the outputs are of shape "
            f"{list(outputs.shape[1:])} for targets of shape {list(targets.shape[1:])}"
        )
    return outputs.reshape(targets.shape)


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the highest score is the label's; where a score is NaN none is highest, and the answer is wrong.

    Outputs [B, 1, C] go with labels [B] and the other way round.
    """
    highest, label = outputs.max(-1)  # NaN counts as the highest, and comes out
    if label.numel() != targets.numel():  # where a comparison would spread one over the other
        raise TaskError(
            f"the metric 'accuracy' needs a row of class scores for each label, and the outputs are of shape "
            f"{list(outputs.shape[1:])} an example for targets of shape {list(targets.shape[1:])}"
        )
    right = (label == targets.reshape(label.shape)) & ~highest.isnan()
    return _by_example(right.reshape(targets.shape).to(outputs.dtype))


LOSSES: dict[str, tuple[PerExample, Metric]] = {
    "cross_entropy": (cross_entropy, Metric("accuracy", accuracy, higher_is_better=True)),
    "squared_error": (squared_error, Metric("squared_error", squared_error, higher_is_better=False)),
    "hinge": (hinge, Metric("accuracy", sign_accuracy, higher_is_better=True)),
}


def resolve(loss: str | PerExample, metric: Metric | None) -> tuple[PerExample, Metric]:
    """The loss and the metric that a task was asked for; a named loss brings its own metric."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise unknown("loss", loss, LOSSES)
        of, default = LOSSES[loss]
        return of, metric or default
    if metric is None:
        what = "a loss of your own needs a Metric(name, of, higher_is_better)"
        raise SettingError(f"Task.metric is missing: {what}")
    return loss, metric


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real examples of a padded batch."""
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)
