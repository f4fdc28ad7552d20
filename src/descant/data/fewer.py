"""Federated data without its tiny clients: parts that are packed already."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from descant.data.arrays import PARTS
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.part import Part
from descant.data.tiny import Done, Tiny, check_policy, free_name, tiny_clients


def without_tiny(data: FederatedData, least: int, tiny: Tiny) -> FederatedData:
    """What `FederatedData.without_tiny` says."""
    check_policy(least, tiny)
    sizes = torch.stack([data.part(name).sizes for name in PARTS]).sum(0)  # [N]
    few = tiny_clients(dict(zip(data.clients, sizes.tolist(), strict=True)), least, tiny)
    names = tuple(name for name in data.clients if name not in few)
    done = Done.of(few, least, tiny, free_name(names))
    data = replace(data, settings={**data.settings, **done.settings}, notes=(*data.notes, *done.notes))
    if not few:
        return data
    kept, small = (sizes >= least).nonzero()[:, 0], (sizes < least).nonzero()[:, 0]  # places, not numbers
    if tiny == "drop":
        train, valid, test = (data.part(name).only(kept) for name in PARTS)
        numbers = None if data.numbers is None else data.numbers[kept]
        return replace(data, train=train, valid=valid, test=test, clients=names, numbers=numbers)
    if data.numbers is not None:
        raise DataError("some clients of a larger federation cannot be joined: join them before `only`")
    train, valid, test = (_pooled(data.part(name), kept, small) for name in PARTS)
    return replace(data, train=train, valid=valid, test=test, clients=(*names, free_name(names)))


def _pooled(part: Part, kept: Tensor, small: Tensor) -> Part:
    """A part with the clients `kept`, and after them one that holds what the clients `small` do."""
    whole = part.only(torch.cat([kept, small]))
    return Part(whole.inputs, whole.targets, torch.cat([whole.offsets[: len(kept) + 1], whole.offsets[-1:]]))
