"""Loss and metric of K models on their clients' data, in blocks that fit memory."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from descant.execution import Execution
from descant.execution.batches import Rows

_BLOCK = 2**23  # input numbers looked at in one go


def measure(execution: Execution, x: Tensor, buffers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """The mean loss and the mean metric [K], in float64, of the models x [K, d] on all of `rows`' examples.

    Clients without an example get NaN. The largest clients come first, so that each block of examples concerns a
    leading group of clients and ragged sizes cost no more than a part of a block.
    """
    sizes, order = rows.sizes.sort(descending=True)
    x, buffers, rows = x[order], buffers[order], rows.some(order)
    totals = torch.zeros(2, len(order), dtype=torch.float64, device=x.device)
    width = max(1, _BLOCK // (len(order) * max(1, prod(rows.part.inputs.shape[1:]))))
    for begin in range(0, int(sizes[0]), width):
        end = min(begin + width, int(sizes[0]))
        k = int((sizes > begin).sum())
        position = torch.arange(begin, end, device=x.device).expand(k, -1)
        leading = rows.some(slice(k))
        batch = leading.batch(position, position < sizes[:k, None], leading.clients)
        outputs = execution.outputs(x[:k], buffers[:k], batch.inputs)
        for total, of in zip(totals, (execution.task.loss, execution.task.metric.of), strict=True):
            values = of(outputs.flatten(0, 1), batch.targets.flatten(0, 1)).view(k, -1).double()
            total[:k] += torch.where(batch.mask, values, 0).sum(1)
    means = torch.where(sizes > 0, totals / sizes, torch.nan)
    loss, metric = torch.empty_like(means).index_copy_(1, order, means)
    return loss, metric
