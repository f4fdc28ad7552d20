"""LEAF's JSON: a list of users, how many examples each has, and their examples x and y."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.examples import Examples, joined
from descant.datasets.readers.contents import json_of
from descant.datasets.sources import missing

# From the raw x (or y) of a user to a tensor with an example a row.
Encode = Callable[[list[Any]], Tensor]


def read_leaf(folder: Path, name: str, inputs: Encode, targets: Encode, classes: int | None = None) -> Examples:
    """The .json (or .json.gz) files of the folders train and test; without test there is no official test part."""
    train = read_files(_files(folder, "train"), name, inputs, targets, classes)
    if not (tests := _files(folder, "test", may_be_missing=True)):
        return train
    return joined(train, read_files(tests, name, inputs, targets, classes))


def read_files(files: list[Path], name: str, inputs: Encode, targets: Encode, classes: int | None) -> Examples:
    """The users of some files, one after the other; a user's examples may lie in several."""
    place: dict[str, int] = {}
    xs, ys, owners = [], [], []
    for file in files:
        for user, raw_x, raw_y in _users(file):
            try:
                x, y = inputs(raw_x), targets(raw_y)
            except DataError as error:
                raise DataError(error.problem, client=user, file=file) from error
            except (TypeError, ValueError, IndexError, KeyError) as error:
                raise DataError(
                    f"its examples are not those of {name} ({error})", client=user, file=file
                ) from error
            if classes is not None and len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
                raise DataError(f"a label is outside [0, {classes})", client=user, file=file)
            xs.append(x)
            ys.append(y)
            owners.append(torch.full((len(x),), place.setdefault(user, len(place))))
    if not xs or not sum(map(len, xs)):
        raise DataError("it has no examples", file=files[0])
    return Examples(name, torch.cat(xs), torch.cat(ys), classes, torch.cat(owners), tuple(place))


def user_examples(files: list[Path]) -> list[Any]:
    """The raw inputs of all users, for what must be known before they are encoded (a vocabulary)."""
    return [x for file in files for _, raw_x, _ in _users(file) for x in raw_x]


def train_files(folder: Path) -> list[Path]:
    """The files of the training part."""
    return _files(folder, "train")


def _users(file: Path) -> list[tuple[str, list[Any], list[Any]]]:
    held = json_of(file)
    try:
        users = [(str(user), held["user_data"][user]["x"], held["user_data"][user]["y"]) for user in held["users"]]
        counts = [int(count) for count in held["num_samples"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"it is not LEAF's form: users, num_samples, user_data ({error!r})", file=file) from error
    for (user, x, y), count in zip(users, counts, strict=False):
        if not len(x) == len(y) == count:
            raise DataError(f"{len(x)} inputs, {len(y)} targets, and {count} announced", client=user, file=file)
    if len(counts) != len(users):
        raise DataError(f"{len(users)} users, but {len(counts)} numbers of samples", file=file)
    return users


def _files(folder: Path, part: str, may_be_missing: bool = False) -> list[Path]:
    found = sorted([*(folder / part).glob("*.json"), *(folder / part).glob("*.json.gz")])
    found = found or sorted(folder.glob(f"my{part}.json*"))  # as Ditto's and FedProx's scripts call a single file
    if not found and not may_be_missing:
        raise missing(folder, f"{part}/all_data.json")
    return found
