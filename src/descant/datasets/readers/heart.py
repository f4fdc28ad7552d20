"""UCI heart disease: 13 features and a diagnosis of the patients of four hospitals, with missing values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.datasets.readers.contents import contents_of
from descant.datasets.sources import HOSPITALS, find

FEATURES = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
_NEVER_ZERO = [FEATURES.index("trestbps"), FEATURES.index("chol")]  # a blood pressure, a cholesterol


def read_heart(folder: Path) -> Examples:
    """All patients, [M, 13]; NaN where a value is missing. The target is whether any disease was found (0: none).

    A blood pressure or a cholesterol of 0 stands for a missing one (all 123 of Switzerland's cholesterols).
    """
    tables = [_patients(find(folder, f"processed.{hospital}.data")) for hospital in HOSPITALS]
    rows = torch.cat(tables)
    owners = torch.arange(len(tables)).repeat_interleave(torch.tensor([len(table) for table in tables]))
    inputs = rows[:, :-1].clone()
    values = inputs[:, _NEVER_ZERO]
    inputs[:, _NEVER_ZERO] = torch.where(values == 0, torch.nan, values)
    return Examples("heart-disease", inputs, (rows[:, -1] > 0).long(), 2, owners, HOSPITALS)


def _patients(file: Path) -> Tensor:
    lines = contents_of(file).decode("ascii", "replace").split()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = [float("nan") if value == "?" else float(value) for value in line.split(",")]
            if len(row) != len(FEATURES) + 1 or not 0 <= row[-1] <= 4:
                raise ValueError(f"{len(row)} values, the last {row[-1]}")
        except ValueError as error:
            raise DataError(f"line {number} is not 13 features and a diagnosis ({error})", file=file) from error
        rows.append(row)
    if not rows:
        raise DataError("it is empty", file=file)
    return torch.from_numpy(np.array(rows, dtype=np.float32))


def completed(train: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Missing values filled and features standardised, with the means and deviations of training rows alone.

    The mean and the deviation of a feature are over the training rows, of all hospitals, that have it: sums that a
    federation can add up. Some hospitals never measured some features, and have no mean of their own. A missing
    value becomes the mean, which is 0 after standardising.
    """
    known = ~train.isnan()
    count = known.sum(0).clamp(min=1)
    mean = torch.where(known, train, 0).sum(0) / count
    std = (torch.where(known, train - mean, 0).square().sum(0) / count).sqrt()
    std = torch.where(std > 0, std, 1.0)
    return tuple(((rows - mean) / std).nan_to_num(0.0) for rows in (train, *others))
