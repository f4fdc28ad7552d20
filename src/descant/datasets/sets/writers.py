"""Pictures with clients of their own: who wrote, drew or is shown on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from descant.data.clients import Test, clients_of
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.partitions import Natural, Partition
from descant.data.pictures import decode, stacked
from descant.datasets.readers.idx import read_mnist, read_writers
from descant.datasets.readers.leaf import read_leaf
from descant.datasets.readers.npz import read_chars74k
from descant.datasets.sets.images import pictures
from descant.datasets.sources import folder_of
from descant.draws import uniform
from descant.errors import SettingError


def mnist_by_writer(
    *,
    writers: int | None = None,
    clients: int | None = None,
    most: int | None = None,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    root: Path | str | None = None,
) -> FederatedData:
    """MNIST by writer: its 60,000 training digits, a client for each of the 539 people who wrote them.

    QMNIST's labels say who wrote which (19 to 131 digits each). The writers of the official test part are others,
    so that a client is tested on a share of its own digits. With `writers`, so many of them take part, drawn by the
    seed. With `clients`, those are grouped in their order into that many, as FLAME's code groups writers for its
    feature skew. With `most`, a client trains on that many of its digits at most, drawn by the seed; what it
    validates and tests on stays.
    """
    whole, rows = read_mnist(folder_of("mnist", root)), read_writers(folder_of("qmnist-labels", root))
    if len(rows) != whole.test_from:
        problem = f"it has {len(rows)} writers' rows, and MNIST {whole.test_from} training digits"
        raise DataError(problem, file=folder_of("qmnist-labels", root))
    known = torch.from_numpy(np.unique(rows.numpy()))
    if writers is not None and not 1 <= writers <= len(known):
        raise SettingError(f"writers = {writers}: it must be from 1 to {len(known)}, who wrote the digits")
    drawn = uniform(seed, "writers", known).argsort()[:writers]
    here = torch.isin(rows, known[drawn]).nonzero().squeeze(1)
    ids, owners = np.unique(rows[here].numpy(), return_inverse=True)
    examples = replace(
        whole,
        name="mnist-by-writer",
        inputs=whole.inputs[here],
        targets=whole.targets[here],
        owners=torch.from_numpy(owners.astype(np.int64)),
        owner_names=tuple(f"writer {writer}" for writer in ids.tolist()),
        test_from=None,
    )
    data = pictures(examples, Natural(clients=clients), test, valid, seed, mean, std, most)
    return data if writers is None else replace(data, settings={**data.settings, "writers": writers})


def femnist(
    *,
    partition: Partition | None = None,
    test: Test = "official",
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """FEMNIST from LEAF's JSON: handwritten characters of 62 classes, a writer a client (Caldas et al., 2018).

    Pixels are as LEAF has them: floats in [0, 1], of which 1 is the paper.
    """

    def pixels(raw: list[Any]) -> Tensor:
        return torch.tensor(raw, dtype=torch.float32).view(len(raw), 1, 28, 28)

    examples = read_leaf(folder_of("femnist", root), "femnist", pixels, _labels, 62)
    return clients_of(examples, partition, test=test, valid=valid, seed=seed)


def celeba(
    *,
    partition: Partition | None = None,
    size: int = 84,
    test: Test = "official",
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """CelebA by LEAF's list of pictures: does the celebrity smile; a celebrity a client (Caldas et al., 2018).

    The JSON names pictures of the folder celeba/img_align_celeba, scaled to `size` x `size` whatever their
    shape, as LEAF does. Needs the extra `data`.
    """
    folder = folder_of("celeba", root)

    def pixels(raw: list[Any]) -> Tensor:
        files = [folder / "img_align_celeba" / Path(str(name)).name for name in raw]
        if not files:
            return torch.empty(0, 3, size, size, dtype=torch.uint8)
        return stacked([decode(file, file, grey=False, size=size, crop=False) for file in files])

    examples = read_leaf(folder, "celeba", pixels, _labels, 2)
    return clients_of(examples, partition, test=test, valid=valid, seed=seed, settings={"size": size})


def chars74k(
    *,
    partition: Partition | None = None,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Chars74K's handwriting: 62 characters by 55 volunteers, once each; a volunteer a client (de Campos, 2009)."""
    examples = read_chars74k(folder_of("chars74k-hnd", root))
    return clients_of(examples, partition, test=test, valid=valid, seed=seed)


def _labels(raw: list[Any]) -> Tensor:
    return torch.tensor([int(label) for label in raw], dtype=torch.int64)
