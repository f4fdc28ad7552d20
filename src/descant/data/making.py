"""Federated data from a data frame, a folder and a data set: what `FederatedData` makes of what a user has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import Dataset

from descant.data.albums import is_album, read_albums
from descant.data.arrays import parts_of
from descant.data.assignment import Assignment, assigned, known_names
from descant.data.errors import DataError, NotFiniteError
from descant.data.folder import client_files, first_not_finite, read_client
from descant.data.named import Named, clients_by_name
from descant.data.tiny import without_tiny
from descant.errors import SettingError

if TYPE_CHECKING:
    from descant.data.federated import FederatedData

Data = TypeVar("Data", bound="FederatedData")


def of_frame(
    make: type[Data], frame: Any, columns: Mapping[str, Any], classes: int | None, name: str, how: dict[str, Any]
) -> Data:
    """Clients from a data frame; `columns` are those of the client, the target, the features and the split."""
    from descant.data.frame import clients_in

    found = clients_in(frame, **columns)
    data = make.from_arrays(found.clients, **how, classes=classes or len(found.class_names) or None, name=name)
    settings = {"client": str(columns["client"]), "target": str(columns["target"]), "features": found.features}
    settings |= {} if columns["split"] is None else {"split": str(columns["split"])}
    return replace(data, settings=settings | dict(data.settings), class_names=found.class_names)


def of_folder(make: type[Data], folder: Path, size: int | None, grey: bool, how: dict[str, Any]) -> Data:
    """Clients from a folder of .npz files, or of pictures, which are of a `size` and in colours or `grey`."""
    if is_album(folder):
        return _of_albums(make, folder, size=size, grey=grey, **how)
    if size is not None or grey:
        raise SettingError("size and grey are for pictures, and the folder holds .npz files: leave them out")
    files = client_files(folder)
    clients = {name: read_client(name, file) for name, file in files.items()}
    try:
        data = make.from_arrays(clients, **how, name="folder")
    except DataError as error:
        if error.client not in files:
            raise
        problem = error.problem
        if isinstance(error, NotFiniteError):
            problem += f" (the first is row {first_not_finite(clients[error.client])})"
        raise DataError(problem, client=error.client, file=files[error.client]) from error
    return replace(data, settings={"folder": str(folder), **data.settings})


def _of_albums(
    make: type[Data], folder: Path, *, size: int | None, grey: bool, classes: int | None, **how: Any
) -> Data:
    found = read_albums(folder, size=size, grey=grey)
    named, done = without_tiny(found.clients, how.pop("least"), how.pop("tiny"))
    train, valid, test = (found.seen(part) for part in parts_of(named, **how))  # parts of rows, until here
    settings = {"folder": str(folder), "size": size, "grey": grey, **how, "classes": classes, **done.settings}
    about = ("folder", tuple(named), settings)
    classes = classes or len(found.class_names)
    return make(train, valid, test, classes, *about, class_names=found.class_names, notes=done.notes)


def of_dataset(
    make: type[Data],
    dataset: Dataset[Any],
    assignment: Assignment | Named,
    classes: int | None,
    how: dict[str, Any],
) -> Data:
    """Clients from a data set of torch, and who holds which of its examples."""
    if isinstance(assignment, Mapping):
        clients, whole, words = clients_by_name(dataset, assignment)
    else:
        whole, words = assigned(dataset, assignment)
        clients = {name: whole.client(k) for k, name in enumerate(by_number(len(whole)))}
    words = words if words or classes is not None else known_names(dataset, whole.targets)
    data = make.from_arrays(clients, **how, classes=classes or len(words) or None, name="dataset")
    settings = {"dataset": type(dataset).__name__, **data.settings, "classes": classes}
    return replace(data, settings=settings, class_names=words)


def by_number(clients: int) -> tuple[str, ...]:
    """The names of clients that have none."""
    return tuple(str(k) for k in range(clients))
