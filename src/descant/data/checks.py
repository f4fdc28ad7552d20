"""What data must satisfy before anything trains on it.

Every check is one reduction over the packed tensor; the guilty client is looked for only when one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral

import torch
from torch import Tensor

from descant.data.errors import DataError, NotFiniteError
from descant.data.part import Part
from descant.errors import shown

# Labels up to here are taken as they are, and above it so many classes for every label there is: beyond that a
# label is a code for what is missing, an identifier or a number to be predicted, and no class of its own.
_FEW_CLASSES, _CLASSES_A_LABEL = 1000, 10


def check_parts(parts: Mapping[str, Part], clients: Sequence[str], classes: int | None) -> int | None:
    """Refuse parts ("train" among them) that cannot be trained on; return the number of classes.

    Integer targets are labels in [0, classes), and `classes` is inferred as the largest label + 1 where it
    is None.  Floating targets are a regression, which has no classes.
    """
    check_names(clients)
    _check_clients(parts, clients)
    if classes is not None and not (
        isinstance(classes, Integral) and not isinstance(classes, bool) and classes >= 1
    ):
        raise DataError(f"classes = {shown(classes)}: it must be a whole number, 1 or more, or nothing")
    train = parts["train"]
    for part, rows in parts.items():
        _check_alike(part, rows, train)
    if train.targets.is_floating_point():
        if classes is not None:
            raise DataError(
                f"classes={classes} but the targets are {train.targets.dtype}, not integer labels: "
                "cast them to int64, or leave classes out for a regression"
            )
    elif train.targets.dtype != torch.int64:
        raise DataError(f"targets are {train.targets.dtype}: cast labels to int64")
    for part, rows in parts.items():
        for field, values in (("inputs", rows.inputs), ("targets", rows.targets)):
            _check_finite(part, field, values, rows, clients)
    if train.targets.is_floating_point():
        return None
    if classes is None:
        classes = 1 + max(int(rows.targets.max()) for rows in parts.values() if rows.targets.numel())
        _check_highest(parts, clients, classes - 1)
    for part, rows in parts.items():
        _check_labels(part, rows, clients, classes)
    return classes


def check_class_names(names: Sequence[str], classes: int | None) -> None:
    """Refuse names that do not tell the classes apart, or that are not one a class."""
    if not names:
        return
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataError(f"class_names = {shown(names)}: they must be different words")
    if len(names) != classes:
        raise DataError(
            f"there are {len(names)} class names ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}) and "
            f"classes = {classes}: leave classes out, or give as many"
        )


def check_names(clients: Sequence[str]) -> None:
    """Refuse names that do not tell the clients apart."""
    if len(clients) == 0:
        raise DataError("there are no clients: give at least one")
    for name in clients:
        if not isinstance(name, str):
            raise DataError(f"client names must be strings, and {name!r} is not: give it as {str(name)!r}")
    if len(set(clients)) < len(clients):
        twice = Counter(clients).most_common(1)[0][0]
        raise DataError("the name is given to two clients: name each client once", client=twice)


def _check_clients(parts: Mapping[str, Part], clients: Sequence[str]) -> None:
    for part, rows in parts.items():
        if len(rows) != len(clients):
            raise DataError(f"the {part} part has {len(rows)} clients, and {len(clients)} names were given")
    empty = parts["train"].sizes == 0
    if bool(empty.any()):
        culprit = clients[int(empty.nonzero()[0])]
        raise DataError("no training examples: give it at least one, or leave it out", client=culprit)


def _check_alike(part: str, rows: Part, train: Part) -> None:
    for field in ("inputs", "targets"):
        values, reference = getattr(rows, field), getattr(train, field)
        if values.dtype != reference.dtype or values.shape[1:] != reference.shape[1:]:
            raise DataError(
                f"{part} {field} are {values.dtype} of shape {tuple(values.shape[1:])}, and train {field} "
                f"are {reference.dtype} of shape {tuple(reference.shape[1:])}: make them alike"
            )


def _check_finite(part: str, field: str, values: Tensor, rows: Part, clients: Sequence[str]) -> None:
    # aminmax carries NaN through and, unlike isfinite, needs no copy of the data
    if not values.is_floating_point() or values.numel() == 0 or _all_finite(torch.aminmax(values)):
        return
    problem = "NaN or infinity: repair or remove them"
    refuse(part, field, ~torch.isfinite(values), rows, clients, problem, NotFiniteError)


def _all_finite(extremes: tuple[Tensor, Tensor]) -> bool:
    return all(bool(torch.isfinite(extreme)) for extreme in extremes)


def _check_labels(part: str, rows: Part, clients: Sequence[str], classes: int) -> None:
    labels = rows.targets
    if labels.numel() == 0:
        return
    low, high = torch.aminmax(labels)
    if int(low) < 0 or int(high) >= classes:
        outside = (labels < 0) | (labels >= classes)
        first = int(labels[outside][0])
        remedy = "leave these examples out" if first < 0 else "raise classes"
        problem = f"label {first} outside [0, {classes}): number the labels from 0, or {remedy}"
        refuse(part, "targets", outside, rows, clients, problem)


def _check_highest(parts: Mapping[str, Part], clients: Sequence[str], highest: int) -> None:
    """Refuse a label from which far more classes would follow than there are labels: it numbers something else."""
    held = sum(rows.targets.numel() for rows in parts.values())
    if highest < _FEW_CLASSES or highest <= _CLASSES_A_LABEL * held:
        return
    part, rows = next((name, rows) for name, rows in parts.items() if bool((rows.targets == highest).any()))
    problem = (
        f"label {highest}, and there are {held} labels in all: number the classes from 0 without gaps, say how "
        f"many there are (classes={highest + 1}), or give floating targets for a regression"
    )
    refuse(part, "targets", rows.targets == highest, rows, clients, problem)


def refuse(
    part: str,
    field: str,
    bad: Tensor,
    rows: Part,
    clients: Sequence[str],
    problem: str,
    kind: type[DataError] = DataError,
) -> None:
    """Raise the error of the first client that owns a bad value; bad is boolean, shaped like the field."""
    examples = bad.reshape(len(bad), -1).any(dim=1)  # [M]
    k = int(rows.owners[examples][0])
    start, stop = int(rows.offsets[k]), int(rows.offsets[k + 1])
    count = int(examples[start:stop].sum())
    raise kind(f"{count} of {stop - start} {part} {field} hold {problem}", client=clients[k])
