"""HAPT: a window lies within one activity of one recording, from either form of the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.datasets.readers.hapt import read_hapt

RNG = np.random.default_rng(3)
# experiment, user, activity, first and last sample (counted from 1, both included)
SEGMENTS = [
    (1, 1, 5, 3, 12),
    (1, 1, 7, 13, 14),
    (1, 1, 4, 20, 30),
    (1, 1, 4, 33, 38),
    (2, 1, 5, 1, 8),
    (3, 2, 1, 5, 11),
]
LENGTHS = {(1, 1): 40, (2, 1): 10, (3, 2): 15}


def write_both(folder: Path) -> dict[tuple[int, int], np.ndarray]:
    """The same recordings as UCI's text files and as one npz of the labelled samples."""
    recordings = {key: RNG.standard_normal((length, 6)).round(3) for key, length in LENGTHS.items()}
    raw = folder / "raw" / "RawData"
    raw.mkdir(parents=True)
    for (experiment, user), signal in recordings.items():
        for kind, columns in (("acc", slice(0, 3)), ("gyro", slice(3, 6))):
            np.savetxt(raw / f"{kind}_exp{experiment:02d}_user{user:02d}.txt", signal[:, columns], fmt="%.6f")
    np.savetxt(raw / "labels.txt", SEGMENTS, fmt="%d")
    parts = [(np.arange(a - 1, b), (e, u), activity) for e, u, activity, a, b in SEGMENTS]
    (folder / "npz").mkdir()
    np.savez(
        folder / "npz" / "hapt.npz",
        signal=np.concatenate([recordings[key][rows] for rows, key, _ in parts]).astype(np.float16),
        label=np.concatenate([np.full(len(rows), activity) for rows, _, activity in parts]).astype(np.int8),
        subject=np.concatenate([np.full(len(rows), key[1]) for rows, key, _ in parts]).astype(np.int8),
        sequence=np.concatenate([np.full(len(rows), key[0] - 1) for rows, key, _ in parts]).astype(np.int16),
        t=np.concatenate([rows for rows, _, _ in parts]).astype(np.int32),
    )
    return recordings


def test_windows_are_cut_within_segments(tmp_path: Path) -> None:
    recordings = write_both(tmp_path)
    examples = read_hapt(tmp_path / "raw", window=4, step=3)
    expected = [
        (recordings[e, u][start : start + 4].T, activity - 1, u)
        for e, u, activity, first, last in SEGMENTS
        for start in range(first - 1, last - 3, 3)
    ]
    assert len(expected) == len(examples) == 11
    np.testing.assert_allclose(examples.inputs.numpy(), np.stack([x for x, _, _ in expected]), rtol=1e-6)
    assert examples.targets.tolist() == [y for _, y, _ in expected]
    assert examples.owner_names == ("subject 1", "subject 2") and examples.classes == 12
    assert examples.owners is not None and (examples.owners + 1).tolist() == [u for _, _, u in expected]


def test_both_forms_of_the_files_are_read_alike(tmp_path: Path) -> None:
    write_both(tmp_path)
    raw, packed = (read_hapt(tmp_path / form, window=4, step=2) for form in ("raw", "npz"))
    assert torch.equal(raw.targets, packed.targets) and raw.owner_names == packed.owner_names
    torch.testing.assert_close(raw.inputs, packed.inputs, atol=2e-3, rtol=0)  # the npz is float16


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    write_both(tmp_path)
    with pytest.raises(DataError, match="no activity lasts for 12 samples"):
        read_hapt(tmp_path / "raw", window=12, step=1)
    labels = tmp_path / "raw" / "RawData" / "labels.txt"
    labels.write_text("1 1 5 3 41\n")
    with pytest.raises(DataError, match="samples 3 to 41") as caught:
        read_hapt(tmp_path / "raw", window=4, step=1)
    assert caught.value.file == labels
    labels.write_text("1 1 5 3\n")
    with pytest.raises(DataError, match="table of 5 columns"):
        read_hapt(tmp_path / "raw", window=4, step=1)
    file = tmp_path / "npz" / "hapt.npz"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match=r"no \.npz") as caught:
        read_hapt(tmp_path / "npz", window=4, step=1)
    assert caught.value.file == file
    with pytest.raises(DataError, match="descant data fetch har-hapt"):
        read_hapt(tmp_path / "har-hapt", window=4, step=1)


def test_the_real_hapt(real: Callable[[str], Path]) -> None:
    examples = read_hapt(real("har-hapt"), window=128, step=128)
    assert len(examples.owner_names) == 30 and examples.inputs.shape[1:] == (6, 128)
    assert set(examples.targets.tolist()) == set(range(12))
