"""Clients from a folder of pictures: CLIENT/CLASS/*.png, or CLIENT/train/CLASS/*.png and so on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.arrays import PARTS, Client
from descant.data.errors import DataError
from descant.data.folder import counting_order
from descant.data.part import Part
from descant.data.pictures import ENDINGS, decode, stacked
from descant.errors import SettingError

# Pictures that are not read: to leave them out in silence would be to lose them.
_OTHERS = (".bmp", ".dcm", ".gif", ".heic", ".jp2", ".tif", ".tiff", ".webp")


class Albums(NamedTuple):
    """The pictures of all clients: each client's as rows of `pixels`, with their labels."""

    clients: dict[str, Client]
    pixels: Tensor  # [M, C, H, W] uint8
    class_names: tuple[str, ...]

    def seen(self, rows: Part) -> Part:
        """A part whose inputs are rows with the pictures in their place, from 0 to 1 as float32."""
        return Part(self.pixels[rows.inputs].to(torch.float32).div_(255), rows.targets, rows.offsets)


class _Found(NamedTuple):
    client: str
    part: str  # "" where a client is not in parts
    label: str
    file: Path


def is_album(folder: Path) -> bool:
    """Whether pictures lie in the folders of a folder, and not .npz files in itself."""
    if not folder.is_dir():
        return False
    pictures = (file for client in _folders(folder) for file in client.rglob("*") if _is_picture(file))
    first = next(pictures, None)
    if first is not None and (files := sorted(folder.glob("*.npz"))):
        raise DataError(f"folder {folder} holds .npz files ({files[0].name}) and pictures ({first}): keep one form")
    return first is not None


def read_albums(folder: Path, *, size: int | None, grey: bool) -> Albums:
    """All pictures of a folder's clients; classes are numbered by their sorted names, the same for all clients."""
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise SettingError(f"size = {size!r}: it must be a positive number of pixels, or nothing")
    found = [one for client in _folders(folder) for one in _pictures_of(client)]
    class_names = tuple(sorted({one.label for one in found}))
    place = {label: k for k, label in enumerate(class_names)}
    rows: dict[str, dict[str, tuple[list[int], list[int]]]] = {}
    pixels: list[npt.NDArray[np.uint8]] = []
    for row, (client, part, label, file) in enumerate(found):
        try:
            picture = decode(file, file, grey=grey, size=size)
        except DataError as error:
            raise DataError(error.problem, client=client, file=file) from error
        if pixels and picture.shape != pixels[0].shape:
            shapes = [" x ".join(map(str, one.shape[1:])) for one in (picture, pixels[0])]
            raise DataError(
                f"it is of {shapes[0]} pixels, and {found[0].file} of {shapes[1]}: give a size, as in size=64",
                client=client,
                file=file,
            )
        pixels.append(picture)
        held = rows.setdefault(client, {}).setdefault(part, ([], []))
        held[0].append(row)
        held[1].append(place[label])
    clients: dict[str, Client] = {}
    for client, parts in rows.items():
        pairs = {part: (np.array(own), np.array(labels)) for part, (own, labels) in parts.items()}
        clients[client] = pairs.get("", pairs)
    return Albums(clients, stacked(pixels), class_names)


def _pictures_of(client: Path) -> Iterator[_Found]:
    """The pictures of a client, in the order of their parts, classes and names."""
    held = False
    for part, label in _class_folders(client):
        for file in sorted(label.iterdir(), key=lambda file: (counting_order(file.name), file.name)):
            if file.suffix.lower() in _OTHERS and not file.name.startswith("."):
                problem = f"only {', '.join(ENDINGS)} files are read: convert it, or take it away"
                raise DataError(problem, client=client.name, file=file)
            if _is_picture(file):
                held = True
                yield _Found(client.name, part, label.name, file)
    if not held:
        problem = f"no picture ({', '.join(ENDINGS)}) lies in its folders by class: give it one, or take it away"
        raise DataError(problem, client=client.name, file=client)


def _class_folders(client: Path) -> Iterator[tuple[str, Path]]:
    """The folders by class of a client, with the part that each is of: "" where it is not in parts."""
    _refuse_loose(client, client.name, client.name)
    inside = _folders(client)
    parts = [folder.name for folder in inside if folder.name in PARTS]
    if not parts:
        yield from (("", folder) for folder in inside)
        return
    for folder in inside:
        if folder.name not in PARTS:
            problem = f"it lies beside {', '.join(parts)}: give folders by class, or train, valid and test alone"
            raise DataError(problem, client=client.name, file=folder)
        _refuse_loose(folder, client.name, f"{client.name}/{folder.name}")
        yield from ((folder.name, label) for label in _folders(folder))


def _refuse_loose(folder: Path, client: str, where: str) -> None:
    """Refuse pictures that lie in no folder of a class."""
    if loose := sorted(file for file in folder.iterdir() if _is_picture(file)):
        problem = f"the picture lies in no folder of its class: put it there, as in {where}/CLASS/{loose[0].name}"
        raise DataError(problem, client=client, file=loose[0])


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, numbers in counting order; hidden ones are left alone."""
    inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(inside, key=lambda path: (counting_order(path.name), path.name))


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
