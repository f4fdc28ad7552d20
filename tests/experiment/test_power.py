"""A power cut at every step of a run, on storage that keeps the order of what was done to it, and on one that does
not: nothing comes out wrong, and no run is lost."""

from __future__ import annotations

import os
import random
import shutil
from itertools import product
from pathlib import Path

import pytest

from descant.experiment import finished, unfinished
from descant.state import MappedStore
from tests.experiment.powercut import Recorder, cut
from tests.experiment.small import begin, contents, result, resume

SETTINGS = {"rounds": 5, "evaluate": 2, "cohort": 2}


SLOW = pytest.mark.slow
CASES = [
    ("disk", 200),
    *(pytest.param(*case, marks=SLOW) for case in (("disk", 1), ("memory", 1), ("overwrite", 4))),
]


@pytest.mark.parametrize(("what", "every"), CASES)
def test_a_power_cut_leaves_a_run_that_can_be_gone_on_with(
    tmp_path: Path, what: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedStore, "commits_kept", 2)  # so that rows are made durable in the middle, too
    store = "memory" if what == "memory" else "disk"
    recorder = Recorder(str(tmp_path / "disk"))
    (tmp_path / "disk").mkdir()
    with recorder.recording():
        before = 0
        if what == "overwrite":  # over a finished run of another seed, and in the place of one that was begun
            begin(tmp_path / "disk" / "runs" / "run", store=store, seed=9, **SETTINGS)
            before = len(recorder.steps)
            begin(tmp_path / "disk" / "runs" / "run", store=store, overwrite=True, stop=2, **SETTINGS)
        begin(tmp_path / "disk" / "runs" / "run", store=store, overwrite=True, **SETTINGS)
    expected = result(tmp_path / "disk" / "runs" / "run")
    assert len(recorder.steps) - before > 90
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # from here on nothing is cut
    draw, tried = random.Random(1), set[str]()
    cuts = list(product(range(before, len(recorder.steps) + 1, every), (True, False)))
    for after, ordered in cuts:
        there = tmp_path / "left"
        shutil.rmtree(there, ignore_errors=True)
        cut(recorder.steps, after, draw, ordered, there)
        if (left := contents(there)) in tried:
            continue
        tried.add(left)
        folder, where = there / "runs" / "run", (after, ordered, recorder.steps[after - 1 : after + 1])
        if unfinished(folder):
            resume(folder)
        elif not finished(folder):
            begin(folder, store=store, **SETTINGS)
        if '"seed": 9' not in (folder / "run.json").read_text():  # of the run before, which is whole still
            assert result(folder) == expected, where
        assert not list(folder.rglob("*.tmp")) or finished(folder), where
    assert len(tried) > 0.3 * len(cuts)
