"""Small tensors that are known twice: where models are trained, and in the processor's memory.

Who takes part, how many examples they hold and how many steps they take decide what is to be done next. To read
that from a GPU the processor would wait until all that was asked before is done. So it keeps its own copy of what
it has sent there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_KNOWN = WeakIdKeyDictionary()  # a tensor on a device -> the same in the processor's memory, as long as it lives


def sent(values: Tensor, device: torch.device) -> Tensor:
    """`values` on a device, to be read again by `host` without waiting. Neither copy may be changed."""
    if device.type == "cpu":
        return values.cpu()
    there = values.to(device, non_blocking=True)
    if values.device.type == "cpu":
        _KNOWN[there] = values
    return there


def host(values: Tensor) -> Tensor:
    """The same values in the processor's memory: at once where they were `sent` from there."""
    if values.device.type == "cpu":
        return values
    known: Tensor | None = _KNOWN.get(values)  # type: ignore[no-untyped-call]
    if known is None:
        known = _KNOWN[values] = values.cpu()
    return known


def spread(values: Tensor, rows: int) -> Tensor:
    """So many rows [K, ...] of the same values, to be read again by `host` without waiting where these can be."""
    there = values.expand(rows, *values.shape)
    if (known := _KNOWN.get(values)) is not None:  # type: ignore[no-untyped-call]
        _KNOWN[there] = known.expand_as(there)
    return there


def parts(numbers: Tensor, length: int) -> list[Tensor]:
    """The numbers in groups of a length, the last one shorter; none of no numbers."""
    known = host(numbers)
    if len(known) <= length:
        return [numbers] if len(known) else []
    return [sent(part, numbers.device) for part in torch.split(known, length)]
