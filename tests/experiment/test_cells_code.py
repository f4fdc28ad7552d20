"""A cell whose code is of the user's own is known by that code as well; descant's own parts by its version."""

from __future__ import annotations

import importlib
import linecache
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from descant.sealed import read_json, write_json
from tests.experiment.onecell import VALUES, run

METHOD_OF_ONES_OWN = """
from dataclasses import dataclass
from descant.methods import Ditto

@dataclass(frozen=True, kw_only=True)
class Mine(Ditto):
    name = "mine"

    def step(self, v, grad, w):
        return super().step(v, grad, {times} * w)
"""
HELPER_OF_ONES_OWN = """
from dataclasses import dataclass
from descant.methods import Ditto

SCALE = {times}

def tie(w):
    return SCALE * w

@dataclass(frozen=True, kw_only=True)
class Mine(Ditto):
    name = "mine"

    def step(self, v, grad, w):
        return super().step(v, grad, tie(w))
"""
MODEL_OF_ONES_OWN = """
from torch import nn

class Net(nn.Linear):
    def forward(self, x):
        return {times} * super().forward(x)

def net(data):
    return Net(data.input_shape[0], data.classes)
"""
HELPER_OF_A_MODEL = """
from torch import nn

def grow(x):
    return {times} * x

class Net(nn.Linear):
    def forward(self, x):
        return grow(super().forward(x))

def net(data):
    return Net(data.input_shape[0], data.classes)
"""


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (METHOD_OF_ONES_OWN, {"methods": {"a": {"name": "own_code:Mine", "steps": 1}}}),
        (HELPER_OF_ONES_OWN, {"methods": {"a": {"name": "own_code:Mine", "steps": 1}}}),
        (MODEL_OF_ONES_OWN, {"methods": {"a": {"name": "ditto", "steps": 1}}, "model": "own_code:net"}),
        (HELPER_OF_A_MODEL, {"methods": {"a": {"name": "ditto", "steps": 1}}, "model": "own_code:net"}),
    ],
    ids=["method", "method's helper", "model", "model's helper"],
)
def test_a_cell_of_other_code_is_not_taken_for_one_of_now(
    text: str, setting: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is that of the same settings; what the run recorded of the code tells them apart."""
    monkeypatch.syspath_prepend(tmp_path)
    values = {name: value for name, value in VALUES.items() if name != "method"} | setting
    rounds = []
    for times in (1, 1, 3, 3, 1):
        monkeypatch.delitem(sys.modules, "own_code", raising=False)
        (tmp_path / "own_code.py").write_text(text.format(times=times))
        importlib.invalidate_caches()
        linecache.clearcache()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        rounds.append(run(values, tmp_path / "grid")[1])
    assert rounds[0] > 0 and rounds[2] > 0 and rounds[1] == rounds[3] == rounds[4] == 0


@pytest.mark.parametrize(
    "method",
    [{"name": "hush", "m": 3, "steps": 1}, {"name": "one-projection", "m": 3, "steps": 1}, {"name": "ditto"}],
)
@pytest.mark.parametrize("python", [None, "3.9.1"])
def test_a_cell_of_our_own_parts_is_read_whatever_their_code(
    method: dict[str, Any], python: str | None, tmp_path: Path
) -> None:
    """Versions tell it, and a run records another codec than its settings name, where the method rounds."""
    values = {name: value for name, value in VALUES.items() if name != "method"} | {"methods": {"a": method}}
    run(values, tmp_path)
    (path,) = tmp_path.glob("*/run.json")
    about, _ = read_json(path)
    about["fingerprints"]["method"] = "of a Python that writes its syntax in another way"
    about["config"]["versions"]["python"] = python or about["config"]["versions"]["python"]
    write_json(path, about)
    assert run(values, tmp_path)[1] == 0
