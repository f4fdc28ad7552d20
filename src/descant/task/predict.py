"""One client's model on one minibatch, for an objective to look at."""

from __future__ import annotations

from torch import Tensor

from descant.task.batch import Batch
from descant.task.task import Task


class Predict:
    """The outputs, and the mean loss, of models x [d] on one client's minibatch, in training mode.

    Running statistics are those that the first prediction leaves: the model that is trained comes first.
    """

    def __init__(self, task: Task, statistics: Tensor, batch: Batch) -> None:
        self.task, self.batch, self.before = task, batch, statistics
        self.statistics: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        outputs, statistics = self.task.apply(x, self.before, self.batch.inputs, self.batch.key)
        if self.statistics is None:
            self.statistics = statistics
        return outputs

    def loss(self, x: Tensor) -> Tensor:
        """The task's own objective, for an objective that adds to it."""
        return self.task.objective(self, x, self.batch)
