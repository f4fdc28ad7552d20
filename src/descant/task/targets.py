"""Whether the targets of data are what a loss takes."""

from __future__ import annotations

from torch import Tensor

from descant.data import FederatedData
from descant.data.arrays import PARTS
from descant.errors import TaskError
from descant.task.objectives import bce, hinge
from descant.task.task import Task


def check_targets(task: Task, data: FederatedData) -> None:
    """Refuse targets that the task's loss would read as something else; the error names the client."""
    if task.loss not in (bce, hinge):
        return
    for name in PARTS:
        part = data.part(name)
        wrong = _outside_unit(part.targets) if task.loss is bce else _no_sign(part.targets)
        examples = wrong.flatten(1).any(1) if wrong.dim() > 1 else wrong  # [M]
        if bool(examples.any()):
            owner = int(part.owners[examples][0])
            client, own = data.clients[owner], examples & (part.owners == owner)
            takes = "the labels 0 and 1" if task.loss is bce else "the labels 0 and 1, or -1 and 1"
            raise TaskError(
                f"client {client!r}: {int(own.sum())} {name} targets such as {part.targets[wrong][0].item()}, "
                f"and the loss '{task.loss.__name__}' takes {takes}; for more classes use 'cross_entropy'"
            )


def _outside_unit(targets: Tensor) -> Tensor:
    return (targets < 0) | (targets > 1)  # a number between them is the probability of a label


def _no_sign(targets: Tensor) -> Tensor:
    return (targets != 1) & (targets != 0) & (targets != -1)
