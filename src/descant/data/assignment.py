"""From one data set and who holds which of its examples to packed clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from descant.data.arrays import Pairs, as_array, labels, pack
from descant.data.errors import DataError
from descant.data.part import Part
from descant.data.splits import IntArray, offsets_of
from descant.data.words import are_words, as_words, class_names, places_of

# A client id per example (-1: unused), or for every client the indices of its examples.
Assignment = Tensor | npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]] | Sequence[IntArray]


def assigned(
    dataset: Dataset[Any], assignment: Assignment, names: Sequence[str] | None = None
) -> tuple[Part, tuple[str, ...]]:
    """The examples of the data set, client after client as `assignment` says, and the words for its labels.

    Errors call clients by their names.
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"the data set is a {type(dataset).__name__}: give one with a length, whose examples are dataset[i]"
        )
    examples = len(dataset)
    order, sizes = _order(assignment, examples, names)
    if not sizes.all():
        culprit = str(int(np.flatnonzero(sizes == 0)[0]))
        raise DataError(
            "the assignment gives it no examples: give it one, or number clients without gaps", client=culprit
        )
    inputs, targets, words = _read(dataset, order, sizes, names)
    return Part(inputs, targets, offsets_of(sizes)), words


def known_names(dataset: Any, labels: Tensor) -> tuple[str, ...]:
    """The class names that a data set brings along, as torchvision's do, where there is one for each label."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return ()
    fit = not labels.is_floating_point() and len(set(names)) == len(names) == int(labels.max()) + 1
    return tuple(names) if fit else ()


def _order(assignment: Assignment, examples: int, names: Sequence[str] | None = None) -> tuple[IntArray, IntArray]:
    """The indices of the examples in client order, [M], and how many each client has, [N]."""
    if len(assignment) == 0:
        raise DataError("the assignment is empty: give a client id per example, or index lists")
    if np.ndim(assignment[0]) == 0:
        if isinstance(assignment[0], str):
            raise DataError(
                f"the assignment has names for clients, the first {str(assignment[0])!r}: give numbers from 0 on, "
                "or the examples of each name, as in {'Ulm': [0, 5], 'Bonn': [1, 2]}"
            )
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
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """The inputs and targets of the examples in `order`, and the words that targets stand for, where they do."""
    # indexed at once; a subclass may change its examples on the way, and is read one by one
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        inputs, targets = (values[torch.from_numpy(order)] for values in dataset.tensors)
        rows = Pairs(as_array(inputs, "inputs"), labels(as_array(targets, "targets")))
        return torch.from_numpy(rows.inputs), torch.from_numpy(rows.targets), ()
    names = names or [str(k) for k in range(len(sizes))]
    owners = [names[k] for k in np.repeat(np.arange(len(sizes)), sizes).tolist()]
    pairs = [_pair(dataset, index, owner) for index, owner in zip(order.tolist(), owners, strict=True)]
    words: tuple[str, ...] = ()
    if pairs and are_words(pairs[0][1]):
        said = [as_words(y, f"example {i}: ", k) for (_, y), i, k in zip(pairs, order, owners, strict=True)]
        words = class_names(said)
        pairs = [(x, places_of(word, words)) for (x, _), word in zip(pairs, said, strict=True)]
    examples = [_rows(*pair, index, owner) for pair, index, owner in zip(pairs, order, owners, strict=True)]
    packed = pack(examples, owners, examples[0])
    return packed.inputs, packed.targets, words


def _pair(dataset: Dataset[Any], index: int, owner: str) -> tuple[Any, Any]:
    example = dataset[index]
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise DataError(
            f"example {index} of the data set is a {type(example).__name__}, not a pair (input, target)",
            client=owner,
        )
    return example[0], example[1]


def _rows(x: Any, y: Any, index: int, owner: str) -> Pairs:
    inputs = as_array(x, f"inputs of example {index}", owner)
    targets = as_array(y, f"targets of example {index}", owner)
    return Pairs(inputs[None], labels(targets)[None])
