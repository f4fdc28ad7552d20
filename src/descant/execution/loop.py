"""One client after the other: what vmap cannot do, and its check."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy

import torch
from torch import Tensor

from descant.execution.base import Execution, ObjectiveRows, client_loss, of_length
from descant.execution.convolutions import has_convolutions
from descant.task.batch import Batch
from descant.task.task import Task
from descant.task.types import Objective


class Loop(Execution):
    """A plain loop over clients, with plain autograd and unpadded batches.

    `channels_last` lays images out as convolutions on a CPU like them best. With several `workers` clients are
    computed side by side, each by one thread: small layers gain little from threads that share their work.
    """

    mode = "loop"

    def __init__(self, task: Task, *, channels_last: bool = False, workers: int = 1) -> None:
        super().__init__(task)
        self.channels_last, self.workers = channels_last, workers
        # A call swaps a client's parameters into the module: each worker has modules of its own.
        shared = {id(tensor): tensor for tensor in task.tensors()}
        self._tasks = [task, *(deepcopy(task, dict(shared)) for _ in range(workers - 1))]
        self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def grads(
        self, x: Tensor, buffers: Tensor, batch: Batch, active: Tensor, objective: Objective, rows: ObjectiveRows
    ) -> tuple[Tensor, Tensor]:
        gradients, statistics = torch.zeros_like(x), buffers.clone()

        def of_one(task: Task, k: int) -> None:
            own = batch.client(k)
            own = own._replace(inputs=self.laid_out(own.inputs))
            leaf = x[k].detach().requires_grad_()
            with torch.enable_grad(), of_length(len(own.mask), [k]):
                value, left = client_loss(task, leaf, buffers[k], own, objective, tuple(row[k] for row in rows))
            (gradients[k],) = torch.autograd.grad(value, leaf)
            statistics[k] = left

        self._each(of_one, active.nonzero().squeeze(1).tolist())
        return gradients, statistics

    def outputs(self, x: Tensor, buffers: Tensor, inputs: Tensor) -> Tensor:
        found: dict[int, Tensor] = {}

        def of_one(task: Task, k: int) -> None:
            with torch.no_grad():
                found[k] = task.apply(x[k], buffers[k], self.laid_out(inputs[k]))[0]

        self._each(of_one, list(range(len(x))))
        return torch.stack([found[k] for k in range(len(x))])

    def _each(self, work: Callable[[Task, int], None], clients: list[int]) -> None:
        """Do the work of each client: in turn, or every worker that of the next one left."""
        left = iter(clients)

        def share(worker: int) -> None:
            for k in left:
                work(self._tasks[worker], k)

        if self.workers == 1:
            share(0)
            return
        done = [self._pool.submit(share, worker) for worker in range(self.workers)]
        wait(done)  # for all of them, should one have failed
        for future in done:
            future.result()

    def laid_out(self, inputs: Tensor) -> Tensor:
        """Images as convolutions like them best, where that was asked for."""
        fits = self.channels_last and inputs.dim() == 4
        return inputs.contiguous(memory_format=torch.channels_last) if fits else inputs


def takes_channels_last(task: Task, inputs: Tensor) -> bool:
    """Whether a model of convolutions takes images in channels_last: one that calls `view` on them does not."""
    images = inputs.dim() == 4 and has_convolutions(task)
    try:
        if images:
            start, statistics = (t.to(inputs.device)[None] for t in (task.start(), task.buffer_start()))
            Loop(task, channels_last=True).outputs(start, statistics, inputs[None])
    except RuntimeError:
        return False
    return images
