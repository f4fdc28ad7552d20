"""Models of a saved run whose settings file says how to build them, by name or by import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import descant as dc
from descant.errors import SettingError
from descant.experiment.settings import RunSettings
from tests.bad_input.calling import descant
from tests.interrupted import interrupt

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 3, "samples": 15, "dim": 4, "classes": 3},
    "method": {"name": "fedavg", "steps": 1},
    "rounds": 1,
    "mode": "vmap",
}
MINE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, data, hidden: int = 5):
        super().__init__()
        [d] = data.input_shape
        self.layers = nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, data.classes))

    def forward(self, inputs):
        return self.layers(inputs)

def net(data, hidden: int = 5):
    return Net(data, hidden)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's, in a folder that Python looks in."""
    (tmp_path / "net_of_mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("net_of_mine", None)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_comparison_has_the_models_of_a_file_that_it_has_just_followed(mine: Path) -> None:
    values = {name: value for name, value in SETTINGS.items() if name != "method"}
    values |= {"methods": ["fedavg"], "model": "net_of_mine:net"}
    (mine / "compared.yaml").write_text(yaml.safe_dump(values))
    (run,) = dc.compare(mine / "compared.yaml", out=mine / "runs")
    assert isinstance(run.personal(0), torch.nn.Module) and isinstance(run.shared(), torch.nn.Module)


@pytest.mark.parametrize("name", ["net", "Net"])
def test_an_import_path_is_followed_if_it_is_allowed(mine: Path, name: str) -> None:
    model = {"name": f"net_of_mine:{name}", "hidden": 7}
    run = RunSettings.of(SETTINGS | {"model": model}).execute(mine / "run")
    del sys.modules["net_of_mine"]  # as in the next session
    refused = r"model: the model 'net_of_mine:.*' is an import path.*allow_imports=True\); or .*model=MyNet\(\)"
    with pytest.raises(SettingError, match=refused):
        dc.load(mine / "run").personal(1)
    assert "net_of_mine" not in sys.modules, "nothing was run"
    loaded = dc.load(mine / "run", allow_imports=True)
    assert same(loaded.personal(1), run.personal(1)) and same(loaded.shared(), run.shared())


def test_a_class_that_this_process_has_is_no_strangers(mine: Path) -> None:
    run = RunSettings.of(SETTINGS | {"model": "net_of_mine:Net"}).execute(mine / "run")
    assert same(dc.load(mine / "run").personal(1), run.personal(1))


def test_what_is_gone_or_has_changed_is_said_with_the_argument_to_give(mine: Path) -> None:
    RunSettings.of(SETTINGS | {"model": "net_of_mine:net"}).execute(mine / "run")
    del sys.modules["net_of_mine"]
    (mine / "net_of_mine.py").write_text(MINE.replace("self.layers(inputs)", "2 * self.layers(inputs)"))
    with pytest.raises(SettingError, match="code of its forward differ"):
        dc.load(mine / "run", allow_imports=True).personal(1)
    del sys.modules["net_of_mine"]
    (mine / "net_of_mine.py").unlink()
    with pytest.raises(SettingError, match=r"model: 'net_of_mine:net' cannot be imported.*model=MyNet\(\)"):
        dc.load(mine / "run", allow_imports=True).personal(1)


def test_one_logit_is_built_as_it_was(tmp_path: Path) -> None:
    two = {"name": "synthetic", "clients": 3, "samples": 15, "dim": 4, "classes": 2}
    settings = SETTINGS | {"data": two, "model": {"name": "mlp", "hidden": [3]}, "loss": "bce"}
    run = RunSettings.of(settings).execute(tmp_path / "run")
    assert same(dc.load(tmp_path / "run").personal(2), run.personal(2))


def test_the_command_exports_what_it_may_import(mine: Path) -> None:
    (mine / "own.yaml").write_text(
        "data: {name: synthetic, clients: 3, samples: 15, dim: 4, classes: 3}\n"
        "model: net_of_mine:net\nmethod: fedavg\nrounds: 1\nmode: vmap\n"
    )
    assert descant("run", "own.yaml", "-q", cwd=mine).status == 0
    done = descant("export", "runs/own", "out", cwd=mine)
    assert done.status == 2 and "--allow-imports" in done.err and not (mine / "out").exists()
    done = descant("export", "runs/own", "out", "--client", "1", "--allow-imports", cwd=mine)
    assert done.status == 0, done.err
    program = torch.export.load(mine / "out" / "1-1.pt2").module()  # type: ignore[no-untyped-call]
    kept = dc.load(mine / "runs" / "own", allow_imports=True).personal(1)
    inputs = torch.ones(2, 4)
    assert torch.equal(program(inputs), kept(inputs))


@pytest.mark.parametrize("named", [True, False])
def test_the_advice_on_an_unfinished_run_can_be_followed(mine: Path, named: bool) -> None:
    model = {"model": "net_of_mine:net"} if named else {}
    settings = RunSettings.of(SETTINGS | model | {"rounds": 3, "commit": 1, "label": "my:own"})
    with pytest.raises(KeyboardInterrupt):
        settings.execute(mine / "run", progress=interrupt(2))
    sys.modules.pop("net_of_mine", None)
    command = ["resume", *(["--allow-imports"] if named else []), str(mine / "run")]
    found = descant("verify", "run", cwd=mine)
    assert found.status == 0 and f"go on with: descant {' '.join(command[:-1])} run" in found.out, found.out
    with pytest.raises(SettingError, match=f"go on with it .descant {' '.join(command)}."):
        settings.execute(mine / "run")
    assert descant(*command, "-q", cwd=mine).status == 0
