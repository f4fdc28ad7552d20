"""Heart disease: missing values are filled by what training rows say, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.datasets.readers.heart import completed, read_heart

LINE = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,{}"


def write_hospitals(folder: Path, lines: list[str] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        (folder / f"processed.{hospital}.data").write_text(
            "\n".join(lines or [LINE.format(2), LINE.format(0)]) + "\n"
        )
    return folder


def test_values_are_read_and_any_disease_is_one(tmp_path: Path) -> None:
    examples = read_heart(write_hospitals(tmp_path))
    assert examples.inputs.shape == (8, 13) and examples.targets.tolist() == [1, 0] * 4
    assert examples.owners is not None and examples.owners.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert examples.owner_names == ("cleveland", "hungarian", "switzerland", "va")
    torch.testing.assert_close(examples.inputs[0, 9], torch.tensor(2.3))


def test_question_marks_and_impossible_zeros_are_missing(tmp_path: Path) -> None:
    examples = read_heart(write_hospitals(tmp_path, ["40,1,2,0,0,?,0,?,0,0,2,?,3,1", LINE.format(0)]))
    assert examples.inputs[0].isnan().nonzero().flatten().tolist() == [3, 4, 5, 7, 11]
    assert not examples.inputs[1].isnan().any()  # its zeros (exang, ca) are values


def test_filling_agrees_with_a_plain_loop_over_features() -> None:
    rng = np.random.default_rng(4)
    train, test = rng.normal(5, 3, (40, 4)), rng.normal(5, 3, (15, 4))
    train[rng.random(train.shape) < 0.3] = np.nan
    test[rng.random(test.shape) < 0.3] = np.nan
    train[:, 2] = 7.0  # a feature that does not vary
    train[:, 3] = np.nan  # a feature that nobody has
    filled = completed(torch.from_numpy(train), torch.from_numpy(test))
    for values, found in zip((train, test), filled, strict=True):
        for j in range(4):
            known = train[~np.isnan(train[:, j]), j]
            mean, std = (known.mean(), known.std() or 1.0) if len(known) else (0.0, 1.0)
            expected = [0.0 if np.isnan(value) else (value - mean) / std for value in values[:, j]]
            np.testing.assert_allclose(found[:, j].numpy(), expected, atol=1e-12)


def test_test_rows_have_no_say_in_how_values_are_filled() -> None:
    rng = np.random.default_rng(5)
    train, test = torch.from_numpy(rng.normal(size=(30, 3))), torch.from_numpy(rng.normal(size=(10, 3)))
    train[3, 1] = torch.nan
    once, _ = completed(train, test)
    again, _ = completed(train, test * 1000)
    assert torch.equal(once, again)


@pytest.mark.parametrize("line", ["1,2,3", LINE.format(5), LINE.format("?"), LINE.format("x"), ""])
def test_a_spoilt_line_is_named(tmp_path: Path, line: str) -> None:
    write_hospitals(tmp_path)
    file = tmp_path / "processed.va.data"
    file.write_text(f"{LINE.format(1)}\n{line}\n" if line else "")
    with pytest.raises(DataError, match="line 2" if line else "empty") as caught:
        read_heart(tmp_path)
    assert caught.value.file == file


def test_the_real_hospitals(real: Callable[[str], Path]) -> None:
    examples = read_heart(real("heart-disease"))
    assert examples.owners is not None and examples.owners.bincount().tolist() == [303, 294, 123, 200]
    switzerland = examples.inputs[examples.owners == 2]
    assert switzerland[:, 4].isnan().all()  # not one cholesterol
