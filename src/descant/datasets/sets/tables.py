"""Measurements: a sensor, a person or a hospital is a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from descant.data.clients import Test, clients_of
from descant.data.errors import DataError
from descant.data.federated import FederatedData
from descant.data.partitions import Natural, Partition
from descant.datasets.readers.hapt import read_hapt
from descant.datasets.readers.heart import completed, read_heart
from descant.datasets.readers.leaf import read_leaf
from descant.datasets.sources import folder_of
from descant.errors import SettingError


def vehicle(
    *,
    partition: Partition | None = None,
    test: Test = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """Vehicle: which of two vehicles passes, from 100 acoustic and seismic features; 23 sensors (Ditto).

    From Ditto's mytrain.json, and mytest.json where it is there (test: official uses it as the test part). Features
    are standardised by sensor already; the labels -1 and 1 become 0 and 1.
    """

    def features(raw: list[Any]) -> Tensor:
        return torch.tensor(raw, dtype=torch.float32).reshape(len(raw), 100)

    def signs(raw: list[Any]) -> Tensor:
        sign = torch.tensor(raw).reshape(len(raw))
        if not bool((sign.abs() == 1).all()):
            raise DataError("a label is neither -1 nor 1")
        return (sign > 0).long()

    examples = read_leaf(folder_of("vehicle", root), "vehicle", features, signs, 2)
    return clients_of(examples, partition, test=test, valid=valid, seed=seed)


def hapt(
    *,
    window: int = 128,
    step: int = 128,
    partition: Partition | None = None,
    test: float = 0.2,
    valid: float = 0.2,
    seed: int = 0,
    root: Path | str | None = None,
) -> FederatedData:
    """HAPT: 12 activities from the motion of a phone, in windows of 2.56 s; 30 subjects (Reyes-Ortiz et al., 2016).

    Inputs are [6, window]: acceleration (g) and rotation (rad/s) on three axes at 50 Hz. A window lies within one
    activity of one recording; every `step` samples one begins. UCI's own windows overlap by half (step = 64): then
    the test part shares samples with the training part, and test accuracies flatter.
    """
    for field, value in (("window", window), ("step", step)):
        if value < 1:
            raise SettingError(f"hapt: {field} = {value!r}: it must be at least 1")
    examples = read_hapt(folder_of("har-hapt", root), window, step)
    settings = {"window": window, "step": step}
    return clients_of(examples, partition, test=test, valid=valid, seed=seed, settings=settings)


def heart_disease(
    *, test: float = 0.2, valid: float = 0.2, seed: int = 0, root: Path | str | None = None
) -> FederatedData:
    """UCI heart disease: is there any, from 13 features of a patient; four hospitals (Janosi et al., 1988).

    Missing values become the mean of the feature over the training rows of all hospitals that have it, and features
    are standardised by the same rows: nothing is learnt from validation or test rows.
    """
    examples = read_heart(folder_of("heart-disease", root))
    return clients_of(examples, Natural(), test=test, valid=valid, seed=seed, finish=completed)
