"""Losses and metrics, one number an example."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from descant.errors import TaskError
from descant.task.metric import Metric
from descant.task.tallies import PerExample, is_positive


class Named(NamedTuple):
    """A loss, and the metric that goes with it."""

    loss: PerExample
    metric: Metric


def _by_example(values: Tensor) -> Tensor:
    """The mean over whatever lies behind the example axis (a sequence's positions, several outputs)."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of class scores [B, C], or of [B, T, C] for sequences (the mean over T)."""
    scores, labels = outputs.flatten(0, -2), targets.flatten()
    if torch.compiler.is_compiling() and outputs.device.type == "cpu":
        losses = _cross_entropy_of_all(scores, labels)
    else:
        losses = functional.cross_entropy(scores, labels, reduction="none")
    return _by_example(losses.view(targets.shape))


def _cross_entropy_of_all(scores: Tensor, labels: Tensor) -> Tensor:
    """log sum_c exp(s_c) - s_y, by a look at all classes: their gradient, exp(s_c) / sum exp(s) - [c = y], is then
    one loop of a compiled program. What picks out s_y by its place becomes several, with whole numbers in them."""
    highest = scores.detach().amax(-1, keepdim=True)  # which cancels out, and so does its gradient
    powers = (scores - highest).exp()
    chosen = labels[:, None] == torch.arange(scores.shape[-1], device=scores.device)
    return powers.sum(-1).log() + highest.squeeze(-1) - torch.where(chosen, scores, 0).sum(-1)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error of an example's outputs; outputs [B, 1] go with targets [B]."""
    return _by_example((outputs.reshape(targets.shape) - targets).square())


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    """max(0, 1 - y s) of one score s an example; y is 1 for the label 1, and -1 for the label 0 (or -1)."""
    scores = _one_score(outputs, targets)
    return functional.relu(1 - torch.where(is_positive(targets), scores, -scores))


def bce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross entropy -y log p - (1 - y) log(1 - p) of one logit s a label y, with p = 1 / (1 + exp(-s)).

    An example may have several labels [B, L], each with a logit of its own: the mean over them.
    """
    logits = _one_logit(outputs, targets)
    losses = functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    return _by_example(losses)


def sign_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the score of an example is positive just where its label is; one that is NaN is wrong.

    Of several labels, the share.
    """
    scores = outputs.reshape(targets.shape)
    right = ((scores > 0) == is_positive(targets)) & ~scores.isnan()
    return _by_example(right.to(outputs.dtype))


def _one_score(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() != 1 or outputs.numel() != targets.numel():
        raise TaskError(
            f"the loss 'hinge' needs one score an example (as the model svm gives), and the outputs are of shape "
            f"{list(outputs.shape[1:])} for targets of shape {list(targets.shape[1:])}"
        )
    return outputs.reshape(targets.shape)


def _one_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.numel() != targets.numel():
        raise TaskError(
            f"the loss 'bce' needs one logit a label, as in nn.Linear(d, 1), and the outputs are of shape "
            f"{list(outputs.shape[1:])} for targets of shape {list(targets.shape[1:])}; 'cross_entropy' takes a "
            "score for each class"
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


LOSSES: dict[str, Named] = {
    "cross_entropy": Named(cross_entropy, Metric("accuracy", accuracy, higher_is_better=True)),
    "bce": Named(bce, Metric("accuracy", sign_accuracy, higher_is_better=True)),
    "squared_error": Named(squared_error, Metric("squared_error", squared_error, higher_is_better=False)),
    "hinge": Named(hinge, Metric("accuracy", sign_accuracy, higher_is_better=True)),
}


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real examples of a padded batch."""
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)
