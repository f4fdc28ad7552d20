"""FederatedData: who holds which examples, and the ways to make it from what a user has."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from descant.data.arrays import PARTS, Client, parts_of
from descant.data.assignment import Assignment
from descant.data.checks import check_class_names, check_parts
from descant.data.errors import DataError
from descant.data.gaps import note_of_gaps
from descant.data.making import by_number, of_dataset, of_folder, of_frame
from descant.data.named import Named
from descant.data.part import Part
from descant.data.showing import data_text
from descant.data.tiny import without_tiny
from descant.data.words import numbered
from descant.errors import NoFiguresWarning, SettingError, unknown
from descant.fingerprint import fingerprint
from descant.mirrors import host, sent


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """The examples of N clients, checked: every client trains on at least one example, no value is NaN or
    infinite, and labels lie in [0, classes).  Valid and test may be empty for some clients, or for all.

    >>> import numpy as np
    >>> x, y = np.eye(10, dtype=np.float32), np.arange(10) % 2
    >>> data = FederatedData.from_arrays({"ann": (x, y), "bob": (x, 1 - y)})
    >>> data.clients, data.classes, data.train.sizes.tolist(), data.test.sizes.tolist()
    (('ann', 'bob'), 2, [7, 7], [2, 2])
    """

    train: Part
    valid: Part
    test: Part
    classes: int | None = None  # inferred from integer targets (largest label + 1); None for a regression
    name: str = "data"
    clients: tuple[str, ...] = ()  # names; "0", "1", ... where none are given
    settings: Mapping[str, Any] = field(default_factory=dict)  # what it was made with, JSON-able
    numbers: Tensor | None = None  # [N] the clients' numbers in a larger federation; 0, 1, ... by default
    class_names: tuple[str, ...] = ()  # what the labels 0, 1, ... stand for, where they have names
    notes: tuple[str, ...] = ()  # what a reader of figures must know: who was left out, what has no example

    def __post_init__(self) -> None:
        # frozen: these fields are completed once, here
        for name in PARTS:
            object.__setattr__(self, name, self.part(name).without_column())
        object.__setattr__(self, "clients", tuple(self.clients) or by_number(len(self.train)))
        parts, given = {name: self.part(name) for name in PARTS}, self.classes
        object.__setattr__(self, "classes", check_parts(parts, self.clients, given))
        if given is None and self.classes is not None and (note := note_of_gaps(parts, self.clients, self.classes)):
            object.__setattr__(self, "notes", (*self.notes, note))
            remedy = f"correct the labels, or set classes={self.classes} if it is meant so"
            warnings.warn(NoFiguresWarning(f"data {self.name!r}: {note}: {remedy}"), stacklevel=4)
        object.__setattr__(self, "class_names", tuple(self.class_names))
        check_class_names(self.class_names, self.classes)

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.clients)

    def __repr__(self) -> str:
        return data_text(self)

    def part(self, name: str) -> Part:
        """The part called `name`: train, valid or test."""
        if name not in PARTS:
            raise unknown("part", name, PARTS)
        part: Part = getattr(self, name)
        return part

    def only(self, clients: Sequence[int]) -> FederatedData:
        """The data of some clients alone, given by number. They keep their numbers: a process that holds only
        client 17 trains exactly as client 17 of the whole does."""
        numbers = torch.tensor(list(clients), dtype=torch.int64, device=self.train.offsets.device)
        here = torch.arange(len(self), device=numbers.device) if self.numbers is None else self.numbers
        if not len(numbers) or not bool(torch.isin(numbers, here).all()):
            raise DataError(f"clients = {list(clients)}: they must be numbers of clients of this data")
        places = self.places(numbers)
        train, valid, test = (self.part(name).only(places) for name in PARTS)
        names = tuple(self.clients[k] for k in places.tolist())
        return replace(self, train=train, valid=valid, test=test, clients=names, numbers=numbers)

    def places(self, numbers: Tensor) -> Tensor:
        """Where the clients with these numbers [K] lie in this data."""
        if self.numbers is None:
            return numbers
        known, asked = host(self.numbers), host(numbers)
        order = known.argsort()
        places = order[torch.searchsorted(known[order], asked).clamp(max=len(order) - 1)]
        if not torch.equal(known[places], asked):
            raise DataError(f"some of the clients {asked.tolist()} are not in this data")
        return sent(places, numbers.device)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.train.inputs.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every example, and of who holds it."""
        named = [
            (f"{name}.{field}", getattr(self.part(name), field))
            for name in PARTS
            for field in ("inputs", "targets", "offsets")
        ]
        return fingerprint(named, f"{self.classes} {self.clients}{self.class_names or ''}")

    def counts(self) -> Tensor:
        """How many training labels of each class every client holds, [N, classes]."""
        if self.classes is None:
            raise DataError(f"data {self.name!r} is a regression: it has no labels to count")
        targets = self.train.targets
        owners = self.train.owners.repeat_interleave(targets[0].numel())  # targets may be sequences
        cells = owners * self.classes + targets.flatten()
        return cells.bincount(minlength=len(self) * self.classes).reshape(len(self), self.classes)

    def without_tiny(self, least: int, tiny: Literal["refuse", "drop", "pool"] = "drop") -> FederatedData:
        """The data without clients of fewer than `least` examples, those of all parts together.

        They are left out ("drop"), joined into one client called 'pooled' that comes last ("pool"), or an error
        ("refuse"). Whoever is left is numbered anew from 0; in the data of some clients of a larger federation
        (`only`) they keep their numbers, and cannot be joined.
        """
        from descant.data.fewer import without_tiny

        return without_tiny(self, least, tiny)

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> FederatedData:
        """The data on `device`, floating inputs and targets in `dtype`; itself where nothing changes."""
        if dtype is not None and not dtype.is_floating_point:
            raise SettingError(f"dtype = {dtype}: it must be floating; integer inputs and labels keep theirs")
        train, valid, test = (self.part(name).to(dtype, device) for name in PARTS)
        if train is self.train and valid is self.valid and test is self.test:
            return self
        numbers = None if self.numbers is None else self.numbers.to(train.offsets.device)
        return replace(self, train=train, valid=valid, test=test, numbers=numbers)

    def mapped(self, folder: Path | str) -> FederatedData:
        """The same data in memory-mapped files: read when needed, and never in memory as a whole.

        The files are written once; where the folder holds this data already, they are used as they are. A model of
        another dtype than the data's would copy it into memory: lay it out as `data.to(dtype=...)`.
        """
        from descant.data.mapped import holds, load, save

        folder = Path(folder)
        if holds(folder, fingerprint=self.fingerprint):
            return load(folder)
        return save(folder, [self], self.name, self.settings)

    @classmethod
    def from_mapped(cls, folder: Path | str) -> FederatedData:
        """Data that `mapped` laid into a folder, from its files.

        They are not hashed again: whoever changes them makes them other data under the same name.
        """
        from descant.data.mapped import load

        return load(Path(folder))

    @classmethod
    def from_arrays(
        cls,
        clients: Sequence[Client] | Mapping[str, Client],
        *,
        test: float = 0.2,
        valid: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
        least: int = 1,
        tiny: Literal["refuse", "drop", "pool"] = "refuse",
        name: str = "arrays",
    ) -> Self:
        """Clients from arrays in memory, by name or numbered.

        A client is a pair (inputs, targets), or a dict of such pairs called train, valid and test (the last
        two may be missing or empty).  A pair is shuffled and split: the share `test` is set aside first,
        then the share `valid` of what is left (see `split_sizes`).  Examples lie on the first axis; integer
        targets are labels (a column of them, [M, 1], is taken as [M]), floating ones a regression.  Targets that
        are words are class names: numbered in their order, for all clients alike, and kept as `class_names`.

        Clients with fewer than `least` examples, before the split, are refused by name; with tiny="drop" they are
        left out, and with tiny="pool" joined into one client called 'pooled' (`notes` says who).
        """
        named = clients if isinstance(clients, Mapping) else _by_number(clients)
        named, words = numbered(named)
        named, done = without_tiny(named, least, tiny)
        train, valid_part, test_part = parts_of(named, test=test, valid=valid, seed=seed)
        settings = {"test": test, "valid": valid, "seed": seed, "classes": classes, **done.settings}
        told = (classes or len(words) or None, name, tuple(named), settings)
        return cls(train, valid_part, test_part, *told, class_names=words, notes=done.notes)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        client: Hashable,
        target: Hashable,
        features: Iterable[Hashable] | None = None,
        split: Hashable | None = None,
        test: float = 0.2,
        valid: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
        least: int = 1,
        tiny: Literal["refuse", "drop", "pool"] = "refuse",
        name: str = "frame",
    ) -> Self:
        """Clients from a data frame of pandas or polars, one example a row.

        `client`, `target` and `features` name columns: whose a row is, what is to be predicted, and what from. By
        default all other columns are features; they must be numbers, and no value may be missing. Targets that are
        words are classes (`class_names`, sorted), integers are labels, and floating ones a regression. Clients are
        sorted by name, numbers as they count.

        `split` names a column that says of every row whether it is for train, valid or test; without it every
        client's rows are split as in `from_arrays`, which explains the rest.
        """
        how: dict[str, Any] = {"test": test, "valid": valid, "seed": seed, "least": least, "tiny": tiny}
        columns = {"client": client, "target": target, "features": features, "split": split}
        return of_frame(cls, frame, columns, classes, name, how)

    @classmethod
    def from_folder(
        cls,
        folder: Path | str,
        *,
        test: float = 0.2,
        valid: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
        least: int = 1,
        tiny: Literal["refuse", "drop", "pool"] = "refuse",
        size: int | None = None,
        grey: bool = False,
    ) -> Self:
        """Your own clients from a folder: one .npz file each, or one folder of pictures each.

        A file CLIENT.npz holds the arrays `inputs` and `targets`, or `train_inputs`, `train_targets`,
        `valid_inputs`, and so on. Nothing is unpickled.

        Pictures lie in folders by class, CLIENT/CLASS/*.png (or jpg), or CLIENT/train/CLASS/*.png and so on for
        valid and test; the class names of all clients, sorted, are the labels 0, 1, ... (`class_names`). Pictures
        become [3, H, W], or [1, H, W] where they are `grey`, from 0 to 1. They must be of one size, or are cropped
        to their middle square and scaled to `size` x `size`. It needs Pillow: pip install 'descant[data]'.

        The rest is as in `from_arrays`.
        """
        if not isinstance(folder, Path | str):
            raise DataError(f"folder is a {type(folder).__name__}: give the path of a folder with a file a client")
        how: dict[str, Any] = {"test": test, "valid": valid, "seed": seed, "classes": classes}
        how |= {"least": least, "tiny": tiny}
        return of_folder(cls, Path(folder), size, grey, how)

    @classmethod
    def from_datasets(
        cls,
        dataset: Dataset[Any],
        assignment: Assignment | Named,
        *,
        test: float = 0.2,
        valid: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
        least: int = 1,
        tiny: Literal["refuse", "drop", "pool"] = "refuse",
    ) -> Self:
        """Clients from a map-style torch data set of (input, target) pairs, read into memory once.

        `assignment` says who holds what: a client id per example (-1: nobody); for every client the list of its
        examples' indices; or a dict of such lists by name, {"Ulm": [0, 5, 7], ...}, in which a client may be in
        parts, {"Ulm": {"train": [0, 5], "test": [7]}, ...}. No example belongs to two clients.  The rest is as in
        `from_arrays`.
        """
        how: dict[str, Any] = {"test": test, "valid": valid, "seed": seed, "least": least, "tiny": tiny}
        return of_dataset(cls, dataset, assignment, classes, how)


def _by_number(clients: Sequence[Client]) -> dict[str, Client]:
    if not isinstance(clients, Sequence) or isinstance(clients, str | bytes):
        given = type(clients).__name__
        raise DataError(f"clients are a {given}: give a list of pairs (inputs, targets), or a dict of them by name")
    return dict(zip(by_number(len(clients)), clients, strict=True))
