"""From the examples of a data set and a partition to federated data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from descant.data.assignment import order_of_lists
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.part import Part
from descant.data.partitions.base import IntArray, Partition
from descant.data.partitions.natural import Natural
from descant.data.splits import offsets_of, split
from descant.errors import SettingError, renamed, shown


class Unassigned(Protocol):
    """What is known of a data set before anybody holds it."""

    @property
    def name(self) -> str: ...
    def rows(self, index: Tensor) -> Tensor: ...  # the inputs of some, as a model sees them
    @property
    def targets(self) -> Tensor: ...  # [M, ...]
    @property
    def classes(self) -> int | None: ...
    @property
    def owners(self) -> Tensor | None: ...  # [M], the natural client of each example
    @property
    def owner_names(self) -> tuple[str, ...]: ...
    @property
    def test_from(self) -> int | None: ...  # rows from here on are the official test part


def partitioned(
    examples: Unassigned,
    partition: Partition,
    *,
    test: float | Literal["official"] = 0.2,
    valid: float = 0.2,
    seed: int = 0,
) -> FederatedData:
    """The examples as `partition` deals them; each client's are split into train, valid and test.

    The share `test` of a client's examples is set aside first, then the share `valid` of what is left (see
    `split_sizes`); all three are of the client's own distribution.  With test="official" a client is tested on
    those of its examples that lie in the data set's own test part, and trained on none of that part.
    """
    if not isinstance(partition, Partition):
        raise SettingError(
            f"partition = {shown(partition)}: it must be an object of descant.data.Partition, such as "
            "descant.data.partitions.IID(clients=10)"
        )
    owners = None if examples.owners is None else examples.owners.numpy()
    try:
        hands = partition.assign(examples.targets.numpy(), seed, owners)
    except SettingError as error:  # what is wrong is a field of the partition, not of the data set
        raise renamed(error, "partition", [field.name for field in fields(partition)]) from None
    order, sizes = order_of_lists(hands, len(examples.targets), overlap=partition.overlaps)
    names = _names(examples, partition, order, sizes)
    # Rows are divided, and examples read by them once: no copy of the data lies in between.
    rows = torch.from_numpy(order)
    whole = Part(rows, rows, offsets_of(sizes))
    if test == "official":
        divided = _official(whole, examples.test_from, names, valid, seed)
    else:
        divided = split(whole, names, test=test, valid=valid, seed=seed)
    train, valid_part, test_part = (_read(examples, partition, part, seed) for part in divided)
    settings = {"partition": partition.settings(), "test": test, "valid": valid, "seed": seed}
    words = getattr(examples, "class_names", ())
    return FederatedData(
        train, valid_part, test_part, examples.classes, examples.name, names, settings, class_names=words
    )


def _names(examples: Unassigned, partition: Partition, order: IntArray, sizes: IntArray) -> tuple[str, ...]:
    """Owners' names where every client is one, and numbers elsewhere."""
    if examples.owners is None or not isinstance(partition, Natural) or partition.clients is not None:
        return tuple(str(k) for k in range(len(sizes)))
    first = torch.from_numpy(order[np.cumsum(sizes) - sizes])
    return tuple(examples.owner_names[owner] for owner in examples.owners[first].tolist())


def _official(
    whole: Part, test_from: int | None, names: Sequence[str], valid: float, seed: int
) -> tuple[Part, Part, Part]:
    if test_from is None:
        raise DataError("the data set has no test part of its own: give test as a share, as in test=0.2")
    tested = whole.inputs >= test_from

    def those(kept: Tensor) -> Part:
        sizes = torch.bincount(whole.owners[kept], minlength=len(whole)).numpy()
        return Part(whole.inputs[kept], whole.inputs[kept], offsets_of(sizes))

    train, valid_part, _ = split(those(~tested), names, test=0.0, valid=valid, seed=seed)
    return train, valid_part, those(tested)


def _read(examples: Unassigned, partition: Partition, part: Part, seed: int) -> Part:
    """The examples of a part of rows, as the clients see them."""
    rows = part.inputs
    inputs = examples.rows(rows)
    if type(partition).change is not Partition.change:
        for k, start in enumerate(part.offsets[:-1].tolist()):
            own = slice(start, start + int(part.sizes[k]))
            if own.stop > start:
                inputs[own] = partition.change(inputs[own], rows[own], k, seed)
    return Part(inputs, examples.targets[rows], part.offsets)
