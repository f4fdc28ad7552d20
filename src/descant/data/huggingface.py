"""Clients from a Hugging Face data set that the user has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.arrays import as_array, labels
from descant.data.clients import clients_of
from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.data.federated import FederatedData
from descant.data.partitions import Partition
from descant.data.words import are_words, as_words, class_names, places_of


def from_huggingface(
    dataset: Any,
    *,
    inputs: str = "image",
    targets: str = "label",
    owners: str | None = None,
    partition: Partition | None = None,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    name: str = "huggingface",
) -> FederatedData:
    """Clients from one split of a data set of the library `datasets`, or anything that gives columns by name.

    `inputs`, `targets` and `owners` name columns: pictures, numbers or rows of numbers of one length; labels or
    numbers; whose an example is, by any name. Without a partition, every owner is a client. Pictures get their
    channels first, and pixels (bytes) become (x / 255 - mean) / std. Labels that are words, or that the data set
    has words for, keep them as `class_names`.
    """
    x, (y, words) = _column(dataset, inputs), _labels(dataset, targets)
    whose = None if owners is None else [str(owner) for owner in _values(dataset, owners)]
    people = sorted(set(whose or ()))
    place = {person: k for k, person in enumerate(people)}
    examples = Examples(
        name,
        _pixels_first(torch.from_numpy(x)),
        torch.from_numpy(labels(y)),
        None if y.dtype.kind == "f" else len(words) or int(y.max(initial=0)) + 1,
        None if whose is None else torch.tensor([place[person] for person in whose]),
        tuple(people),
        class_names=words,
    )
    settings = {"inputs": inputs, "targets": targets, "owners": owners, "mean": mean, "std": std}
    return clients_of(examples, partition, test=test, valid=valid, seed=seed, settings=settings, mean=mean, std=std)


def _values(dataset: Any, column: str) -> Any:
    known = getattr(dataset, "column_names", None)
    if known is not None and column not in known:
        raise DataError(f"the data set has no column '{column}': it has {', '.join(map(str, known))}")
    try:
        return dataset[column]
    except (KeyError, TypeError, IndexError) as error:
        raise DataError(f"the data set has no column '{column}' ({error})") from error


def _labels(dataset: Any, column: str) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """The targets as numbers, and the classes' names: words that stood there, or what the data set calls them."""
    values = _values(dataset, column)
    if len(values) and are_words(values[0]):
        words = as_words(list(values), f"column '{column}': ")
        names = class_names([words])
        return places_of(words, names), names
    numbers = _column(dataset, column)
    known = getattr(getattr(dataset, "features", {}).get(column), "names", None) or ()
    return numbers, tuple(map(str, known))


def _column(dataset: Any, column: str) -> npt.NDArray[Any]:
    values = [np.asarray(value) for value in _values(dataset, column)]
    if len({(value.shape, value.dtype) for value in values}) > 1:
        raise DataError(f"the values of column '{column}' are not of one shape and type: bring them to one")
    if not values:
        raise DataError(f"column '{column}' is empty")
    return np.array(as_array(np.stack(values), f"the values of column '{column}'"))


def _pixels_first(x: Tensor) -> Tensor:
    """Pictures as [M, C, H, W]; all else as it is."""
    if x.dtype != torch.uint8 or x.ndim not in (3, 4):
        return x
    return x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()
