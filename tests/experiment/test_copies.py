"""Copies of a run that are taken file by file while it goes on: right in the end, or refused by name."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from descant.engine import Record, RoundRecord
from descant.errors import DamagedError
from descant.experiment import unfinished
from descant.state import MappedStore
from tests.experiment import small

CASES = [("disk", 3), *(pytest.param(store, 10, marks=pytest.mark.slow) for store in ("disk", "memory"))]


@pytest.mark.parametrize(("store", "number"), CASES)
def test_a_copy_taken_while_it_runs_is_right_or_refused(
    tmp_path: Path, store: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy takes its files in another order, some of them rounds later than the others."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(MappedStore, "commits_kept", 3)
    draw, run = random.Random(3), tmp_path / "run"
    copies = [tmp_path / f"copy{i}" for i in range(number)]
    later = {copy: draw.random() for copy in copies}

    def take(record: Record) -> None:
        for copy in copies if isinstance(record, RoundRecord) else ():
            files = sorted(file for file in run.rglob("*") if file.is_file() and not file.name.endswith(".tmp"))
            for file in files:
                there = copy / file.relative_to(run)
                if not there.exists() and draw.random() > later[copy] * 0.9:
                    there.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, there)

    import descant as dc

    ditto = dc.methods.Ditto(lam=0.3, steps=2, batch=4, solver=dc.methods.FedAvg(steps=1, batch=5))
    how = {"rounds": 22, "cohort": 3, "evaluate": 5, "mode": "vmap", "commit": 1, "store": store}
    dc.simulate(small.task(), small.DATA, ditto, out=run, progress=take, **how)  # type: ignore[arg-type]
    expected, ends = small.result(run), []
    for copy in copies:
        assert unfinished(copy)
        try:
            small.resume(copy)
            assert small.result(copy) == expected
            ends.append("right")
        except DamagedError as error:
            assert str(copy) in str(error)
            ends.append("refused")
    assert "refused" in ends
