"""HAPT: accelerometer and gyroscope of a waist-mounted phone at 50 Hz, 30 subjects, 12 activities; as windows."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from descant.data.errors import DataError
from descant.data.examples import Examples
from descant.datasets.readers.contents import contents_of
from descant.datasets.readers.npz import read_npz
from descant.datasets.sources import missing

ACTIVITIES = 12


def read_hapt(folder: Path, window: int, step: int) -> Examples:
    """Windows of `window` samples, every `step`, within one recording and one activity: [M, 6, window].

    Read from UCI's RawData, or from one .npz of all labelled samples (signal, label, subject, sequence, t).
    """
    raw = next(iter(sorted(folder.glob("**/RawData"))), None)
    packed = next(iter(sorted(folder.glob("*.npz"))), None)
    if raw is not None:
        signal, label, subject, segment = _raw(raw)
    elif packed is not None:
        signal, label, subject, segment = _packed(packed)
    else:
        raise missing(folder, "RawData/labels.txt")
    starts = _starts(segment, window, step)
    if not len(starts):
        raise DataError(f"no activity lasts for {window} samples", file=raw or packed)
    pieces = signal[starts[:, None] + np.arange(window)].transpose(0, 2, 1)  # [M, 6, window]
    people, owners = np.unique(subject[starts], return_inverse=True)
    return Examples(
        "hapt",
        torch.from_numpy(np.ascontiguousarray(pieces, dtype=np.float32)),
        torch.from_numpy(label[starts].astype(np.int64) - 1),
        ACTIVITIES,
        torch.from_numpy(owners.astype(np.int64)),
        tuple(f"subject {person}" for person in people),
    )


Samples = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _starts(segment: npt.NDArray[np.int64], window: int, step: int) -> npt.NDArray[np.int64]:
    """Where windows begin: every `step` samples of each segment, whole windows only."""
    edges = np.flatnonzero(np.diff(segment, prepend=segment[0] - 1, append=segment[-1] + 1))
    return np.concatenate([np.arange(a, b - window + 1, step) for a, b in itertools.pairwise(edges)])


def _packed(file: Path) -> Samples:
    arrays = read_npz(file, ("signal", "label", "subject", "sequence", "t"))
    label, subject, sequence, t = (arrays[key].astype(np.int64) for key in ("label", "subject", "sequence", "t"))
    if arrays["signal"].shape != (len(label), 6) or not 1 <= label.min() <= label.max() <= ACTIVITIES:
        raise DataError(f"signal must be [M, 6], and labels 1 to {ACTIVITIES}", file=file)
    # a new segment where recording or activity changes, or samples in between carry no label
    change = (np.diff(sequence) != 0) | (np.diff(label) != 0) | (np.diff(t) != 1)
    segment = np.concatenate([[0], np.cumsum(change)])
    return arrays["signal"].astype(np.float32), label, subject, segment


def _raw(folder: Path) -> Samples:
    """UCI's text files: labels.txt has a line a segment (experiment, user, activity, first, last sample)."""
    file = folder / "labels.txt"
    table = _table(file, 5).astype(np.int64)
    recordings: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
    pieces, counts = [], []
    for experiment, user, activity, first, last in table:
        if (experiment, user) not in recordings:
            sides = [
                _table(folder / f"{kind}_exp{experiment:02d}_user{user:02d}.txt", 3) for kind in ("acc", "gyro")
            ]
            recordings[experiment, user] = np.concatenate(sides, axis=1)
        held = recordings[experiment, user]
        if not (1 <= first <= last <= len(held) and 1 <= activity <= ACTIVITIES):
            raise DataError(f"samples {first} to {last} of activity {activity} do not exist", file=file)
        pieces.append(held[first - 1 : last])
        counts.append(last - first + 1)
    segment = np.repeat(np.arange(len(counts)), counts)
    return np.concatenate(pieces).astype(np.float32), table[segment, 2], table[segment, 1], segment


def _table(file: Path, columns: int) -> npt.NDArray[np.float64]:
    lines = contents_of(file).decode("ascii", "replace").split("\n")
    try:
        rows = [[float(number) for number in re.split(r"[\s,]+", line.strip())] for line in lines if line.strip()]
        table = np.array(rows, dtype=np.float64).reshape(len(rows), columns)
    except ValueError as error:
        raise DataError(f"it is not a table of {columns} columns ({error})", file=file) from error
    if not len(table):
        raise DataError("it is empty", file=file)
    return table
