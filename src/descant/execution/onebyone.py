"""One client after the other, each step a compiled program of its own: for convolutions on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad

from descant.execution.base import ObjectiveRows, client_loss
from descant.execution.compiled import Compile
from descant.execution.convolutions import paired
from descant.execution.loop import Loop
from descant.task.batch import Batch
from descant.task.task import Task
from descant.task.types import Objective


class OneByOne(Compile):
    """Steps of one client, without vmap, under torch.compile.

    Under vmap the filters of K clients are one convolution in K groups, which a CPU computes slowly. For one client
    it is a plain convolution, and the compiler makes one loop of what lies between two of them: bias, ReLU and
    pooling. `channels_last` lays images out as in `Loop`. Minibatches are padded, as in `Compile`.
    """

    def __init__(self, task: Task, *, channels_last: bool) -> None:
        super().__init__(paired(task), clients=1)
        self._loop = Loop(task, channels_last=channels_last)

    def grads(
        self, x: Tensor, buffers: Tensor, batch: Batch, active: Tensor, objective: Objective, rows: ObjectiveRows
    ) -> tuple[Tensor, Tensor]:
        def of_one(k: int) -> tuple[Tensor, Tensor]:
            own = Batch(self._loop.laid_out(batch.inputs[k]), batch.targets[k], batch.mask[k], batch.key[k])

            def loss(x: Tensor) -> tuple[Tensor, Tensor]:
                return client_loss(self.task, x, buffers[k], own, objective, tuple(row[k] for row in rows))

            gradient, statistics = grad(loss, has_aux=True)(x[k])
            return gradient, statistics

        gradients, statistics = zip(*map(of_one, range(len(x))), strict=True)
        return torch.stack(gradients), torch.stack(statistics)

    def outputs(self, x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        return self._loop.outputs(x, buffers, inputs)
