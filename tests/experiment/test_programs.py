"""Models become programs that need torch alone, and files whose names are safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.errors import TaskError
from descant.experiment.export import file_stem
from descant.experiment.programs import traced

HOSTILE = [
    "../../etc/passwd",
    "",
    "/",
    "Zürich/Süd",
    "CON",
    "a" * 300,
    ".",
    "..\\x",
    "名前",
    "a\0b\n",
    "-rf",
    "A",
    "a",
]


def test_hostile_names_become_safe_file_names(tmp_path: Path) -> None:
    part = (np.eye(6, 4, dtype="float32"), np.arange(6) % 3)
    data = dc.FederatedData.from_arrays(dict.fromkeys(HOSTILE, part))
    torch.manual_seed(0)
    run = dc.simulate(dc.Task(nn.Linear(4, 3)), data, dc.methods.Local(steps=1), rounds=1)
    written = run.export(tmp_path / "deep" / "out", programs=False)
    assert {file.parent for file in written} == {tmp_path / "deep" / "out"}
    assert len({file.name.lower() for file in written}) == len(HOSTILE) + 1
    for file in written[:-1]:
        assert set(file.stem) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"), file
        assert file.name[:2].isdigit() and len(file.name) < 100
    entries = json.loads(written[-1].read_text())["models"]
    assert [entry["client"] for entry in entries] == HOSTILE
    assert file_stem(3, "St. Gallen/Süd", 20) == "03-St._Gallen_Sud" and file_stem(0, "/", 1) == "0"


class Sized(nn.Module):
    """A module that looks at how many examples there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs) if inputs.sum() > 0 else self.layer(-inputs)
        return outputs


def test_a_module_that_torch_cannot_export_is_named() -> None:
    with pytest.raises(TaskError, match=r"Sized cannot be made a program by torch\.export .*programs=False"):
        traced(Sized(), torch.zeros(2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(dc.models.MODELS) - {"svm"}))
def test_every_model_by_name_becomes_a_program_for_any_number_of_examples(name: str) -> None:
    kinds: dict[str, Any] = {
        "lstm": np.arange(20).reshape(4, 5),
        "shakespeare-lstm": np.arange(20).reshape(4, 5),
        "fedplus-sent140": np.ones((4, 6, 25), "float32"),
    }
    inputs = kinds.get(name, np.zeros((4, 1, 28, 28), "float32"))
    for shape in (None, (4, 3, 32, 32), (4, 3, 84, 84)):
        inputs = inputs if shape is None else np.zeros(shape, "float32")
        data = dc.FederatedData.from_arrays([(inputs, np.array([0, 1, 1, 0]))])
        try:
            model = dc.models.MODELS[name](data).eval()
            model(data.train.inputs[:2])
            break
        except (TaskError, RuntimeError):
            continue
    program = traced(model, data.train.inputs[:2]).module()
    for n in (1, 2):
        torch.testing.assert_close(program(data.train.inputs[:n]), model(data.train.inputs[:n]))
