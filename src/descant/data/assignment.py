"""From one data set and who holds which of its examples to packed clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from descant.data.arrays import Rows, as_array, labels, pack
from descant.data.errors import DataError
from descant.data.part import Part
from descant.data.splits import IntArray, offsets_of

# A client id per example (-1: unused), or for every client the indices of its examples.
Assignment = Tensor | npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]] | Sequence[IntArray]


def assigned(dataset: Dataset[Any], assignment: Assignment, names: Sequence[str] | None = None) -> Part:
    """The examples of the data set, client after client as `assignment` says; errors call them by their names."""
    examples = len(dataset)  # type: ignore[arg-type]  # a map-style data set has a length
    order, sizes = _order(assignment, examples, names)
    if not sizes.all():
        culprit = str(int(np.flatnonzero(sizes == 0)[0]))
        raise DataError(
            "the assignment gives it no examples: give it one, or number clients without gaps", client=culprit
        )
    inputs, targets = _read(dataset, order, sizes, names)
    return Part(inputs, targets, offsets_of(sizes))


def _order(assignment: Assignment, examples: int, names: Sequence[str] | None = None) -> tuple[IntArray, IntArray]:
    """The indices of the examples in client order, [M], and how many each client has, [N]."""
    if len(assignment) == 0:
        raise DataError("the assignment is empty: give a client id per example, or index lists")
    if np.ndim(assignment[0]) == 0:
        return _order_of_ids(integers(assignment, "the assignment"), examples)
    lists = [integers(indices, f"the indices of client {k}") for k, indices in enumerate(assignment)]
    return order_of_lists(lists, examples, names=names)


def integers(values: Any, what: str, client: str | None = None) -> IntArray:
    """A flat sequence of integers as an array; anything else is refused."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        problem = f"{what} must be a flat sequence of integers, not {array.dtype} {list(array.shape)}"
        raise DataError(problem, client=client)
    return array.astype(np.int64)


def _order_of_ids(ids: IntArray, examples: int) -> tuple[IntArray, IntArray]:
    if len(ids) != examples:
        raise DataError(
            f"the assignment has {len(ids)} client ids and the data set {examples} examples: "
            "give one id an example, -1 for one that nobody holds"
        )
    outside = (ids < -1) | (ids >= examples)  # as many clients as examples at most: none is empty
    if outside.any():
        row = outside.argmax()
        raise DataError(
            f"the assignment gives example {row} to client {ids[row]}, which is out of range: "
            "ids count from 0 without gaps, and -1 is for an example that nobody holds"
        )
    order = np.argsort(ids, kind="stable")
    held = order[ids[order] >= 0]
    if not len(held):
        raise DataError("the assignment leaves every example unused: give some to clients 0, 1, ...")
    return held, np.bincount(ids[held])


def order_of_lists(
    lists: Sequence[IntArray], examples: int, *, overlap: bool = False, names: Sequence[str] | None = None
) -> tuple[IntArray, IntArray]:
    """The indices of the examples in client order, [M], and how many each client has, [N].

    No example belongs to two clients, or, where they may `overlap`, twice to one.
    """
    names = names or [str(k) for k in range(len(lists))]
    order, sizes = np.concatenate(lists), np.array([len(indices) for indices in lists])
    owners = np.repeat(np.arange(len(lists)), sizes)
    outside = (order < 0) | (order >= examples)
    if outside.any():
        row = outside.argmax()
        raise DataError(
            f"example {order[row]} does not exist: the data set has examples 0 to {examples - 1}",
            client=names[owners[row]],
        )
    held = owners * examples + order if overlap else order
    _, found, taken = np.unique(held, return_index=True, return_counts=True)
    if taken.max(initial=0) > 1:
        row = found[taken.argmax()]
        twice = int(order[row])
        first, second = owners[held == held[row]][:2]
        raise DataError(
            f"example {twice} is assigned twice (also to client {names[first]!r}): give it to one",
            client=names[second],
        )
    return order, sizes


def _read(
    dataset: Dataset[Any], order: IntArray, sizes: IntArray, names: Sequence[str] | None = None
) -> tuple[Tensor, Tensor]:
    """The inputs and targets of the examples in `order`."""
    # indexed at once; a subclass may change its examples on the way, and is read one by one
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        inputs, targets = (values[torch.from_numpy(order)] for values in dataset.tensors)
        rows = Rows(as_array(inputs, "inputs"), labels(as_array(targets, "targets")))
        return torch.from_numpy(rows.inputs), torch.from_numpy(rows.targets)
    names = names or [str(k) for k in range(len(sizes))]
    owners = [names[k] for k in np.repeat(np.arange(len(sizes)), sizes).tolist()]
    examples = [_example(dataset, index, owner) for index, owner in zip(order.tolist(), owners, strict=True)]
    packed = pack(examples, owners, examples[0])
    return packed.inputs, packed.targets


def _example(dataset: Dataset[Any], index: int, owner: str) -> Rows:
    example = dataset[index]
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise DataError(
            f"example {index} of the data set is a {type(example).__name__}, not a pair (input, target)",
            client=owner,
        )
    inputs = as_array(example[0], f"inputs of example {index}", owner)
    targets = as_array(example[1], f"targets of example {index}", owner)
    return Rows(inputs[None], labels(targets)[None])
