"""From the examples of a data set to clients: by a partition, or as they are by nature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.data.federated import FederatedData
from descant.data.part import Part
from descant.data.partitions import Natural, Partition, partitioned
from descant.errors import SettingError

Test = float | Literal["official"]
# From the inputs of train, valid and test to those that models see; may learn from train alone.
Finish = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def clients_of(
    examples: Examples,
    partition: Partition | None,
    *,
    test: Test,
    valid: float,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    finish: Finish | None = None,
) -> FederatedData:
    """The examples as `partition` deals them; without one, every natural owner is a client.

    `settings` are those of the data set itself, to be recorded beside the others'. Bytes are pixels, and become
    (x / 255 - mean) / std.
    """
    if not std > 0:
        raise SettingError(f"{examples.name}: std = {std!r}: it must be positive")
    if partition is None:
        if examples.owners is None:
            raise SettingError(
                f"{examples.name}: partition = None: it has no clients of its own; say who holds what, "
                "as in partition: {name: labels, clients: 100, labels: 2}"
            )
        partition = Natural()
    if test == "official" and examples.owners is not None:
        examples = _trained(examples)
    examples = replace(examples, mean=mean, std=std)
    dealt = examples if finish is None else replace(examples, inputs=torch.arange(len(examples)))
    data = partitioned(dealt, partition, test=test, valid=valid, seed=seed)
    if finish is not None:
        data = _finished(data, examples, finish)
    return replace(data, settings={**(settings or {}), **data.settings})


def _trained(examples: Examples) -> Examples:
    """Without the owners of whom there are test examples only."""
    assert examples.owners is not None
    if examples.test_from is None:
        return examples
    trains = torch.zeros(len(examples.owner_names), dtype=torch.bool)
    trains[examples.owners[: examples.test_from]] = True
    kept = trains[examples.owners]
    if not bool(kept[examples.test_from :].any()):
        raise DataError(
            f"{examples.name}: no owner of a test example has training examples: split every client's examples "
            "with test as a share, as in test: 0.2"
        )
    return examples if bool(kept.all()) else examples.where(kept)


def _finished(data: FederatedData, examples: Examples, finish: Finish) -> FederatedData:
    """Data whose inputs are rows of the examples, with what `finish` makes of these."""
    rows = (data.train, data.valid, data.test)
    inputs = finish(*(examples.rows(part.inputs) for part in rows))
    train, valid, test = (Part(x, part.targets, part.offsets) for x, part in zip(inputs, rows, strict=True))
    return replace(data, train=train, valid=valid, test=test)
