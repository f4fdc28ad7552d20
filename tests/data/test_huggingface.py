"""Anything that gives columns by name can be dealt to clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from descant.data import DataError, from_huggingface
from descant.data.partitions import IID


class Columns:
    """What descant needs of a Hugging Face data set."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns, self.column_names = columns, list(columns)

    def __getitem__(self, column: str) -> list[Any]:
        return self.columns[column]


RNG = np.random.default_rng(11)


def test_pictures_and_labels_with_owners_become_natural_clients() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, (12, 4, 5)).astype(np.uint8)
    dataset = Columns(
        image=[image.fromarray(picture) for picture in pixels],
        label=[i % 3 for i in range(12)],
        writer=["eve", "ann"] * 6,
    )
    data = from_huggingface(dataset, owners="writer", mean=0.5, std=0.5)
    assert data.clients == ("ann", "eve") and data.classes == 3 and data.input_shape == (1, 4, 5)
    held = torch.cat([data.part(part).client(0)[0] for part in ("train", "valid", "test")])
    expected = (pixels[1::2].astype(np.float32) / 255 - 0.5) / 0.5
    assert sorted(held[:, 0, 0, 0].tolist()) == pytest.approx(sorted(expected[:, 0, 0].tolist()))


def test_colour_pictures_get_their_channels_first() -> None:
    dataset = Columns(img=list(RNG.integers(0, 256, (10, 4, 5, 3)).astype(np.uint8)), label=[0, 1] * 5)
    assert from_huggingface(dataset, inputs="img", partition=IID(clients=2)).input_shape == (3, 4, 5)


def test_numbers_become_a_regression() -> None:
    dataset = Columns(x=RNG.normal(size=(10, 3)).tolist(), y=RNG.normal(size=10).tolist())
    data = from_huggingface(dataset, inputs="x", targets="y", partition=IID(clients=2), name="mine")
    assert data.classes is None and data.input_shape == (3,) and data.name == "mine"


def test_columns_that_cannot_be_used_are_named() -> None:
    dataset = Columns(x=[[1.0], [2.0, 3.0]], label=[0, 1], text=["a", "b"])
    with pytest.raises(DataError, match="no column 'image': it has x, label, text"):
        from_huggingface(dataset)
    with pytest.raises(DataError, match="column 'x' are not of one shape"):
        from_huggingface(dataset, inputs="x")
    with pytest.raises(DataError, match="column 'text'"):
        from_huggingface(dataset, inputs="text")
    with pytest.raises(DataError, match="no column 'image'"):
        from_huggingface({"label": [0]})
