"""What is kept of the outputs of K clients while their examples go by, block after block.

A block is the outputs [k, B, ...] of the first k of the K clients, with their targets and a mask [k, B] that is
False where a row only pads. Nothing here loops over clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from descant.errors import TaskError

PerExample = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> [B]


class Counts(NamedTuple):
    """How often each class was right, predicted and there: [K, C] each, in float64.

    An example whose scores are NaN has no predicted class: it counts as there alone.
    """

    hits: Tensor  # predicted, and right
    predicted: Tensor
    actual: Tensor


class Outputs(NamedTuple):
    """The outputs for all examples of K clients, in one row each."""

    outputs: Tensor  # [M, C] class scores; [M, 1] where a model gives one score, of class 1
    labels: Tensor  # [M]
    owner: Tensor  # [M] in [0, K)
    clients: int  # K


class Tally(ABC):
    """A figure of K clients in the making."""

    @abstractmethod
    def add(self, outputs: Tensor, targets: Tensor, mask: Tensor) -> None:
        """Count a block of examples of the first clients."""

    @abstractmethod
    def result(self, sizes: Tensor) -> Tensor:
        """The figure [K, ...] of clients with so many examples [K]; NaN for those without any."""


class Mean(Tally):
    """The mean over a client's examples of one number an example."""

    def __init__(self, of: PerExample, clients: int, device: torch.device) -> None:
        self.of, self.total = of, torch.zeros(clients, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor, mask: Tensor) -> None:
        values = self.of(outputs.flatten(0, 1), targets.flatten(0, 1)).view(len(mask), -1).double()
        self.total[: len(mask)] += torch.where(mask, values, 0).sum(1)

    def result(self, sizes: Tensor) -> Tensor:
        return torch.where(sizes > 0, self.total / sizes, torch.nan)


class CountTally(Tally):
    """A function of `Counts`, which take three numbers a class and client, however many examples there are."""

    def __init__(self, of: Callable[[Counts], Tensor], name: str, clients: int) -> None:
        self.of, self.name, self.clients = of, name, clients
        self.counts: Counts | None = None

    def add(self, outputs: Tensor, targets: Tensor, mask: Tensor) -> None:
        scores, labels, real = by_label(outputs, targets, mask, self.name)
        predicted, answered = prediction(scores)
        if self.counts is None:
            zeros = labels.new_zeros(3, self.clients, max(2, scores.shape[-1]))
            self.counts = Counts(*zeros.unbind())
        answered = answered & real
        right = answered & (predicted == labels)
        for count, where, these in zip(
            self.counts, (labels, predicted, labels), (right, answered, real), strict=True
        ):
            count[: len(mask)].scatter_add_(1, where, these.long())

    def result(self, sizes: Tensor) -> Tensor:
        if self.counts is None:  # nobody has an example
            return torch.full_like(sizes, torch.nan, dtype=torch.float64)
        exact = Counts(*(count.double() for count in self.counts))
        return _by_client(self.of(exact), sizes, self.name)


class OutputTally(Tally):
    """A function of all `Outputs`. They are kept until the end: as many numbers as there are class scores."""

    def __init__(self, of: Callable[[Outputs], Tensor], name: str, clients: int) -> None:
        self.of, self.name, self.clients = of, name, clients
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, outputs: Tensor, targets: Tensor, mask: Tensor) -> None:
        scores, labels, real = by_label(outputs, targets, mask, self.name)
        owner = torch.arange(len(mask), device=mask.device)[:, None].expand_as(labels)
        self.kept.append((scores[real], labels[real], owner[real]))

    def result(self, sizes: Tensor) -> Tensor:
        if not self.kept:
            return torch.full_like(sizes, torch.nan, dtype=torch.float64)
        scores, labels, owner = (torch.cat(blocks) for blocks in zip(*self.kept, strict=True))
        return _by_client(self.of(Outputs(scores, labels, owner, self.clients)), sizes, self.name)


class Confusion(Tally):
    """How many examples of each class were predicted as each: [K, C, C], a row a true class.

    Examples whose scores are NaN have no predicted class and are in no column.
    """

    def __init__(self, clients: int) -> None:
        self.clients, self.classes = clients, 0
        self.counts: Tensor | None = None

    def add(self, outputs: Tensor, targets: Tensor, mask: Tensor) -> None:
        scores, labels, real = by_label(outputs, targets, mask, "confusion")
        predicted, answered = prediction(scores)
        if self.counts is None:
            self.classes = max(2, scores.shape[-1])
            self.counts = labels.new_zeros(self.clients, self.classes**2)
        cells = labels * self.classes + predicted
        self.counts[: len(mask)].scatter_add_(1, cells, (answered & real).long())

    def result(self, sizes: Tensor) -> Tensor:
        counts = sizes.new_zeros(self.clients, 0) if self.counts is None else self.counts  # nobody has an example
        return counts.view(self.clients, self.classes, self.classes)


def _by_client(figures: Tensor, sizes: Tensor, name: str) -> Tensor:
    if figures.shape != sizes.shape:
        raise TaskError(f"the metric '{name}' must return one number a client, a vector [K]")
    return torch.where(sizes > 0, figures.double(), torch.nan)


def by_label(outputs: Tensor, targets: Tensor, mask: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Class scores [k, B, C], labels [k, B] and mask [k, B], with the positions of sequences as examples.

    A model with one score an example (the losses "bce" and "hinge") has C = 1, and the labels 0 and 1.
    """
    single = targets[0, 0].numel() == 1 and outputs.numel() == targets.numel()
    if not single and (outputs.numel() != targets.numel() * outputs.shape[-1] or targets.is_floating_point()):
        raise TaskError(
            f"the metric '{name}' needs one label an example, and a score for each class or one score; the outputs "
            f"are of shape {list(outputs.shape[2:])} for {targets.dtype} targets of shape {list(targets.shape[2:])}"
        )
    labels = targets.flatten(1)
    if single:
        labels = is_positive(labels).long()
    scores = outputs.reshape(*labels.shape, 1 if single else outputs.shape[-1])
    return scores, labels, mask.repeat_interleave(labels.shape[1] // mask.shape[1], 1)


def prediction(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted classes, and where there are any: a NaN is no answer. One score is positive for class 1."""
    if scores.shape[-1] == 1:
        score = scores[..., 0]
        return (score > 0).long(), ~score.isnan()
    highest, predicted = scores.max(-1)  # NaN counts as the highest, and comes out
    return predicted, ~highest.isnan()


def is_positive(labels: Tensor) -> Tensor:
    """Whether a label is that of class 1, where classes are 0 and 1 or, as for the hinge, -1 and 1."""
    return labels > 0.5
