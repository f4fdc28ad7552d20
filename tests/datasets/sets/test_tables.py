"""Vehicle, HAPT and heart disease, from small files and from the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from descant.data import DataError
from descant.datasets import DATASETS
from descant.errors import SettingError

RNG = np.random.default_rng(8)


def test_vehicle_labels_become_zero_and_one(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    def users(count: int) -> dict[str, tuple[list[list[float]], list[list[int]]]]:
        return {
            f"f_0000{u}": (RNG.normal(size=(count, 100)).tolist(), [[int(s)] for s in RNG.choice([-1, 1], count)])
            for u in range(3)
        }

    train = users(10)
    write_leaf(tmp_path / "vehicle" / "mytrain.json.gz", train)
    data = DATASETS["vehicle"](root=tmp_path)
    assert len(data) == 3 and data.classes == 2 and data.input_shape == (100,)
    positive = sum(int(data.part(part).client(1)[1].sum()) for part in ("train", "valid", "test"))
    assert positive == sum(s == [1] for s in train["f_00001"][1])
    with pytest.raises(DataError, match="no test part of its own"):
        DATASETS["vehicle"](test="official", root=tmp_path)
    write_leaf(tmp_path / "vehicle" / "mytest.json", users(4))
    assert DATASETS["vehicle"](test="official", root=tmp_path).test.sizes.tolist() == [4, 4, 4]


def test_vehicle_refuses_other_labels(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    write_leaf(tmp_path / "vehicle" / "mytrain.json", {"f": (np.zeros((2, 100)).tolist(), [[1], [0]])})
    with pytest.raises(DataError, match="neither -1 nor 1"):
        DATASETS["vehicle"](root=tmp_path)


def test_heart_disease_is_complete_and_standardised_by_training_rows(tmp_path: Path) -> None:
    (tmp_path / "heart-disease").mkdir()
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        rows = RNG.integers(1, 60, (25, 13)).astype(str)
        rows[RNG.random(rows.shape) < 0.2] = "?"
        lines = [",".join([*row, str(RNG.integers(0, 5))]) for row in rows]
        (tmp_path / "heart-disease" / f"processed.{hospital}.data").write_text("\n".join(lines))
    data = DATASETS["heart-disease"](root=tmp_path)
    assert data.clients == ("cleveland", "hungarian", "switzerland", "va") and data.input_shape == (13,)
    mean = data.train.inputs.mean(0)
    assert float(mean.abs().max()) < 1e-5  # means are of training rows, and what is missing is the mean
    assert float(data.test.inputs.mean(0).abs().max()) > 1e-3
    other = DATASETS["heart-disease"](seed=1, root=tmp_path)
    assert float(other.train.inputs.mean(0).abs().max()) < 1e-5


@pytest.mark.parametrize("field", ["window", "step"])
def test_hapt_refuses_empty_windows(tmp_path: Path, field: str) -> None:
    with pytest.raises(SettingError, match=f"hapt: {field} = 0"):
        DATASETS["hapt"](**{field: 0}, root=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "clients", "shape", "classes"),
    [
        ("vehicle", "vehicle", 23, (100,), 2),
        ("hapt", "har-hapt", 30, (6, 128), 12),
        ("heart-disease", "heart-disease", 4, (13,), 2),
    ],
)
def test_the_real_data(
    real: Callable[[str], Path], name: str, folder: str, clients: int, shape: tuple[int, ...], classes: int
) -> None:
    real(folder)
    data = DATASETS[name]()
    assert len(data) == clients and data.input_shape == shape and data.classes == classes
