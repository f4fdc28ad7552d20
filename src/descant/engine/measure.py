"""Figures of K models on their clients' data, in blocks that fit memory."""

from __future__ import annotations

import torch
from torch import Tensor

from descant.execution import Execution
from descant.execution.batches import Rows
from descant.task import Metric
from descant.task.recurrent import numbers_held
from descant.task.tallies import Mean, Tally

_BLOCK = 2**23  # numbers of examples looked at in one go
_MORE = 8  # times as many on a GPU
_OBEYED = Metric(
    "attack_success", lambda counts: counts.hits.sum(1) / counts.actual.sum(1), higher_is_better=True, over="counts"
)


def measure(execution: Execution, x: Tensor, buffers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """The mean loss and the metric [K], in float64, of the models x [K, d] on all of `rows`' examples.

    Clients without an example get NaN.
    """
    task = execution.task
    loss, metric = Mean(task.loss, len(x), x.device), task.metric.tally(len(x), x.device)
    found = tallied(execution, x, buffers, rows, loss, metric)
    return found[0], found[1]


def mean_loss(execution: Execution, x: Tensor, buffers: Tensor, rows: Rows) -> Tensor:
    """The mean loss [K], in float64, of the models x [K, d] on all of `rows`' examples."""
    return tallied(execution, x, buffers, rows, Mean(execution.task.loss, len(x), x.device))[0]


def obeyed(execution: Execution, x: Tensor, buffers: Tensor, rows: Rows) -> Tensor:
    """The share [K], in float64, of `rows`' examples that the models x [K, d] take for the class of their target.

    Clients without an example get NaN.
    """
    return tallied(execution, x, buffers, rows, _OBEYED.tally(len(x), x.device))[0]


def tallied(execution: Execution, x: Tensor, buffers: Tensor, rows: Rows, *tallies: Tally) -> list[Tensor]:
    """What each tally [K, ...] says of the models x [K, d] on all of `rows`' examples.

    The largest clients come first, so that each block of examples concerns a leading group of clients and ragged
    sizes cost no more than a part of a block.
    """
    sizes, order = rows.sizes.sort(descending=True, stable=True)
    there = sizes.to(x.device)
    if not bool((order.diff() == 1).all()):
        at = order.to(x.device)
        x, buffers, rows = x[at], buffers[at], rows.some(at)
    block = _BLOCK if x.device.type == "cpu" else _MORE * _BLOCK
    held = numbers_held(execution.task.model, rows.part.inputs.shape[1:])
    width = max(1, block // (len(order) * held))
    for begin in range(0, int(sizes[0]), width):
        end = min(begin + width, int(sizes[0]))
        k = int((sizes > begin).sum())
        position = torch.arange(begin, end, device=x.device).expand(k, -1)
        leading = rows.some(slice(k))
        batch = leading.batch(position, position < there[:k, None], leading.clients)
        outputs = execution.outputs(x[:k], buffers[:k], batch.inputs)
        for tally in tallies:
            tally.add(outputs, batch.targets, batch.mask)
    back = order.argsort().to(x.device)
    return [tally.result(there)[back] for tally in tallies]
