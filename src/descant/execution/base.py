"""How the gradients and predictions of K clients are computed: one vectorised program, or a plain loop."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import grad, vmap

from descant.errors import TaskError
from descant.task.batch import Batch
from descant.task.predict import Predict
from descant.task.task import Task
from descant.task.types import Objective

ObjectiveRows = tuple[Tensor, ...]  # what a method hands to its own objective, each [K, ...]


class SingleExampleError(TaskError):
    """BatchNorm was given a batch of one example; `rows` says which of the K clients had it."""

    def __init__(self, rows: list[int], names: list[str] | None = None) -> None:
        self.rows = rows
        whose = "client" if len(rows) == 1 else "clients"
        named = ", ".join(names or (f"{row} of the cohort" for row in rows))
        super().__init__(
            f"{whose} {named}: BatchNorm cannot train on a batch of a single example. Set drop_last=True to "
            "leave out a short last minibatch, or choose another batch size; a client that has only one example "
            "needs a model without BatchNorm (nn.GroupNorm, say)"
        )


class Execution(ABC):
    """Gradients and predictions for K clients. All modes agree to float tolerance; methods do not see which."""

    mode: str

    def __init__(self, task: Task) -> None:
        self.task = task
        self.convolutions = "grouped"  # how they are computed (`descant.execution.convolutions`)
        self.notes: list[str] = []  # what could not be done as asked; the run reports them
        self.watched: set[str] = set()  # the steps that are known to draw no random numbers

    def note(self, text: str) -> None:
        """Keep a note, once, and without the addresses of objects, which are others in every process."""
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", text)
        if text not in self.notes:
            self.notes.append(text)

    @abstractmethod
    def grads(
        self, x: Tensor, buffers: Tensor, batch: Batch, active: Tensor, objective: Objective, rows: ObjectiveRows
    ) -> tuple[Tensor, Tensor]:
        """Gradients [K, d] of the clients' objectives at x [K, d], and the running statistics [K, b] after it.

        The rows of clients that are not `active` [K] carry no meaning.
        """

    @abstractmethod
    def outputs(self, x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        """The deployed models' outputs [K, B, ...] for inputs [K, B, ...]."""

    def on(self, even: bool) -> Execution:
        """What runs some steps; `even` says that all their minibatches have one length, so that none is padded."""
        return self

    def release(self) -> None:  # noqa: B027 (most have nothing to let go of)
        """Let go of all programs, and of the memory that they work in: nobody trains any more."""

    def width(self, clients: int, first: bool) -> int:
        """How many clients a program takes, at least `clients`: the rest of them is padding.

        `first` is true at the first step, when all clients are at work.
        """
        return clients


def client_loss(
    task: Task, x: Tensor, buffers: Tensor, batch: Batch, objective: Objective, rows: ObjectiveRows
) -> tuple[Tensor, Tensor]:
    """One client's objective, and the running statistics that its first prediction left."""
    predict = Predict(task, buffers, batch)
    value = objective(predict, x, batch, *rows)
    return value, (buffers if predict.statistics is None else predict.statistics).detach()


class Vmap(Execution):
    """All clients in one program (torch.func). A module that mixes examples (BatchNorm) is given unpadded
    batches only, so its clients are grouped by the length of their batch. Where all have one length there is
    nothing to group, and another execution runs those steps: `evenly`, if that is given."""

    mode = "vmap"

    def __init__(self, task: Task, *, mixes: bool = False, evenly: Vmap | None = None) -> None:
        super().__init__(task)
        self.mixes, self.evenly = mixes, evenly
        if evenly is not None:
            self.mode = evenly.mode

    def on(self, even: bool) -> Execution:
        if self.evenly is None or not even:
            return self
        self.evenly.notes = self.notes  # one list, that the run reports
        return self.evenly

    def resize(self, clients: int) -> None:
        """Make programs for another number of clients from now on; let go of the others, and of their memory."""
        if self.evenly is not None:
            self.evenly.resize(clients)

    def release(self) -> None:
        if self.evenly is not None:
            self.evenly.release()

    def grads(
        self, x: Tensor, buffers: Tensor, batch: Batch, active: Tensor, objective: Objective, rows: ObjectiveRows
    ) -> tuple[Tensor, Tensor]:
        def loss(x: Tensor, buffers: Tensor, batch: Batch, *rows: Tensor) -> tuple[Tensor, Tensor]:
            return client_loss(self.task, x, buffers, batch, objective, rows)

        of_all = vmap(grad(loss, has_aux=True))
        if not self.mixes:
            gradients, statistics = of_all(x, buffers, batch, *rows)
            return gradients, statistics
        gradients, statistics = torch.zeros_like(x), buffers.clone()
        lengths = batch.mask.sum(1)
        for length in torch.unique(lengths[active]).tolist():
            who = (active & (lengths == length)).nonzero().squeeze(1)
            inputs, targets, mask = (tensor[who, :length] for tensor in batch[:3])
            part = Batch(inputs, targets, mask, batch.key[who])
            with of_length(length, who):
                gradients[who], statistics[who] = of_all(x[who], buffers[who], part, *(row[who] for row in rows))
        return gradients, statistics

    def outputs(self, x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = vmap(lambda *client: self.task.apply(*client)[0])(x, buffers, inputs)
        return outputs


@contextmanager
def of_length(length: int, who: Tensor | list[int]) -> Iterator[None]:
    """What torch says of BatchNorm on a single example, with whose it was and what to do."""
    try:
        yield
    except ValueError as error:
        if length > 1 or "more than 1 value per channel" not in str(error):
            raise
        raise SingleExampleError([int(k) for k in who]) from error
