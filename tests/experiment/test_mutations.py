"""Thousands of damaged files: every reading is right, or an error that names the file."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

import descant as dc
from descant.errors import DamagedError
from descant.experiment.verify import verify
from tests.experiment.mutations import attack
from tests.experiment.small import Net, begin, copied, result, resume

KINDS, ROUNDS = ("personal", "shared", "selected"), ("chosen", "last")
ALL = dc.Evaluation(every=5, models=("personal", "shared", "selected"))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk need not be waited for where no power is cut."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def resumed(folder: Path) -> str:
    resume(folder)
    return result(folder)


def verified(folder: Path) -> str:
    """Everything that can be read of a finished run."""
    if wrong := verify(folder):
        raise DamagedError(folder, "is damaged", "\n".join(wrong))
    return result(folder)


def loaded(folder: Path) -> str:
    run = dc.load(folder)
    return json.dumps([run.config, run.rounds.write_json(), run.clients.write_json(), run.summary()])


def models(folder: Path) -> str:
    """Every model that a finished run kept, and what is not trained of it."""
    run = dc.load(folder)
    found = [run.models.trained(kind, k, round) for kind, k, round in product(KINDS, range(12), ROUNDS)]
    found += [run.models.module(kind, 3, round, Net()).state_dict() for kind, round in product(KINDS, ROUNDS)]
    return json.dumps([{name: tensor.tolist() for name, tensor in model.items()} for model in found])


FOLDERS = {
    "an unfinished run on disk": (lambda f: begin(f, stop=21), resumed),
    "an unfinished run in memory": (lambda f: begin(f, stop=20, store="memory", commit=4), resumed),
    "a finished run on disk": (begin, verified),
    "a finished run in memory": (lambda f: begin(f, store="memory"), verified),
    "the tables of a finished run": (lambda f: begin(f, store="memory"), loaded),
    "the models of a finished run": (lambda f: begin(f, evaluate=ALL), models),
}


TIMES = {"quick": 12, "slow": 530}  # of six kinds of folders: more than 3,000 in all


@pytest.mark.few(1)
@pytest.mark.parametrize("pace", ["quick", pytest.param("slow", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", FOLDERS)
def test_no_mutation_is_silently_wrong_and_none_is_a_traceback(tmp_path: Path, kind: str, pace: str) -> None:
    times = TIMES[pace]
    make, read = FOLDERS[kind]
    make(tmp_path / "run")
    ends, bad = attack(tmp_path / "run", tmp_path / "copy", times, seed=times, read=read)
    assert not bad, (ends, bad[:10])
    assert ends["named"] > times / 5 and ends["right"] + ends["named"] > 0.9 * times


def test_a_run_that_is_whole_is_said_to_be(tmp_path: Path) -> None:
    begin(tmp_path / "finished")
    begin(tmp_path / "unfinished", stop=3)
    assert verify(tmp_path / "finished") == [] == verify(tmp_path / "unfinished")
    folder = copied(tmp_path / "finished", tmp_path / "copy")
    for name in ("state.safetensors", "rounds.parquet", "clients/leaf0.bin"):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert [name for name in ("rounds.parquet", "state.safetensors", "leaf0.bin") if name in str(verify(folder))]
    assert len(verify(folder)) == 3
