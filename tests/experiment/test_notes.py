"""What could not be carried out as asked is reported, also by a run that was interrupted since."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.execution import Loop
from descant.execution.tuning import Prepared
from descant.methods import Local
from tests.interrupted import interrupt


@dataclass(frozen=True, kw_only=True)
class Careless(Local):
    """Local training whose step is a new function each time."""

    def client(self, down: Any, state: Any, local: Any) -> Any:
        step = lambda v, grad: v - self.lr * grad(v)  # noqa: E731
        return {}, {"v": local.run(step, state["v"], work=self.work, role="personal")}


def careless(out: Path, **more: Any) -> dc.Run:
    data = dc.datasets.synthetic(clients=3, samples=20)
    return dc.simulate(new_task(), data, Careless(steps=1), rounds=4, mode="compile", commit=1, out=out, **more)


def new_task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(nn.Linear(60, 10))


def test_a_note_is_kept_once_and_holds_no_address_of_an_object(tmp_path: Path) -> None:
    (note,) = careless(tmp_path / "run").config["execution"]["fallbacks"]
    assert "Careless.client" in note and "no lasting identity" in note and "0x" not in note


def test_a_resumed_run_reports_what_was_noted_before_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = careless(tmp_path / "unbroken").config["execution"]
    with pytest.raises(KeyboardInterrupt):
        careless(tmp_path / "run", progress=interrupt(3))
    # Whoever goes on with it may have nothing to note any more.
    monkeypatch.setattr("descant.execution.base.Execution.note", lambda *_: None)
    resumed = dc.resume(tmp_path / "run", new_task(), dc.datasets.synthetic(clients=3, samples=20))
    assert resumed.config["execution"] == unbroken and len(unbroken["fallbacks"]) == 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["execution"] == unbroken
    assert not (tmp_path / "run" / "journal").exists()


def test_what_was_noted_while_the_modes_were_measured_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(task: dc.Task, *_: Any, **__: Any) -> Prepared:
        loop = Loop(task, channels_last=True)
        loop.note("a step could not be compiled: no compiler")
        return Prepared(loop, 3, "measured")

    monkeypatch.setattr("descant.experiment.simulate.prepare", prepared)
    data = dc.datasets.synthetic(clients=3, samples=20)
    run = dc.simulate(new_task(), data, "local", rounds=1)
    assert run.config["execution"]["fallbacks"] == ["a step could not be compiled: no compiler"]
