"""The blocks in the README and in the documentation are right: Python runs, YAML is valid, commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import polars
import pytest
import torch
import yaml
from torch.utils.data import TensorDataset
from typer.main import get_command

import descant as dc
from descant.callbacks import Callback
from descant.cli.app import app
from descant.experiment.attackgrid import attack_grid
from descant.experiment.grid import comparison
from descant.experiment.settings import RunSettings
from descant.methods import Method

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def with_blocks(language: str) -> list[Any]:
    return [pytest.param(page, id=page.name) for page in PAGES if blocks(page, language)]


def shorter(block: str) -> str:
    return re.sub(r"rounds=\d+", "rounds=2", block).replace("100_000", "300")


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a reader has when a page starts: a run, and data and a model of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 60)).astype("float32"), np.arange(40) % 10
    (tmp_path / "clients").mkdir()
    np.savez(tmp_path / "clients" / "ward.npz", inputs=x, targets=y)
    found: dict[str, Any] = {"torch": torch, "dc": dc, "x_a": x, "y_a": y, "x_b": x, "y_b": y}
    found |= {"MyNet": lambda: torch.nn.Linear(60, 10), "my_loss": _loss, "my_metric": _hits}
    found |= {"dataset": TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), "assignment": y % 4}
    hospital = ["Ulm"] * 16 + ["Bonn"] * 11 + ["Jena"] * 11 + ["Wald"] * 2
    found["frame"] = polars.DataFrame({"hospital": hospital, "ill": y % 2, "age": x[:, 0]})
    found["data"] = dc.data.synthetic(clients=8, samples=40)
    found["task"], found["method"] = dc.Task(torch.nn.Linear(60, 10)), dc.methods.LpProj()
    found["run"] = dc.simulate(found["task"], found["data"], found["method"], rounds=2, out="runs/first")
    found["run"].save(tmp_path / "runs" / "compare" / "one")
    return found


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def _hits(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(-1) == targets).float()


@pytest.mark.few(1)
@pytest.mark.parametrize("page", with_blocks("python"))
def test_the_python_of_a_page_runs(page: Path, names: dict[str, Any]) -> None:
    for block in blocks(page, "python"):
        if "out=" in block or "dc.resume(" in block:
            rmtree("runs")
        if "dc.resume(" in block:
            _interrupt(names["task"], names["data"])
        exec(shorter(block), names)
    for name, made in own_classes(names):
        for method in made:
            run = dc.simulate(names["task"], names["data"], method, rounds=2)
            assert run.collapse is None, name


def own_classes(names: dict[str, Any]) -> list[tuple[str, list[Method]]]:
    """The methods that a page defines; one on top of Ditto also with candidates for lam."""
    found = [cls for cls in names.values() if isinstance(cls, type) and cls.__module__ == "builtins"]
    methods = [cls for cls in found if issubclass(cls, Method)]
    return [
        (cls.__name__, [cls(), cls(lam=(0.1, 1.0))] if issubclass(cls, dc.methods.Ditto) else [cls()])
        for cls in methods
    ]


def test_every_class_of_the_pages_is_a_method_that_is_simulated_or_a_callback(names: dict[str, Any]) -> None:
    """Or the test above would not know how to try it; a callback is tried where it stands."""
    for page in PAGES:
        classes = re.findall(r"^class (\w+)", "".join(blocks(page, "python")), flags=re.MULTILINE)
        if classes:
            for block in blocks(page, "python"):
                if "class " in block:
                    exec(block, names)
            looking_on = {
                name for name, made in names.items() if isinstance(made, type) and issubclass(made, Callback)
            }
            assert {name for name, _ in own_classes(names)} | looking_on >= set(classes), page


def _interrupt(task: dc.Task, data: dc.FederatedData) -> None:
    def stop(record: object) -> None:
        if getattr(record, "round", 0) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task, data, dc.methods.Local(), rounds=3, out="runs/first", commit=1, progress=stop)


@pytest.mark.parametrize("page", with_blocks("yaml"))
def test_the_settings_of_a_page_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    for block in blocks(page, "yaml"):
        values = yaml.safe_load(block)
        if "fractions" in values:
            assert attack_grid(values).places
        elif "methods" in values:
            assert comparison(values).cells
        else:
            assert RunSettings.of(values).federated_data()


@pytest.mark.parametrize("page", with_blocks("sh"))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    group: Any = get_command(app)
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for line in "".join(blocks(page, "sh")).splitlines():
        command, *rest = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z]+=", word)]
        match command:
            case "descant":
                named = group.commands[rest[0]]
                while hasattr(named, "commands"):
                    named, rest = named.commands[rest[1]], rest[1:]
                named.make_context(rest[0], rest[1:])
                assert all((ROOT / word).is_file() for word in rest if word.startswith("examples/"))
            case "make":
                assert rest[-1] in targets
            case "python":
                assert (ROOT / rest[0]).is_file()
            case _:
                assert command == "pip"


def test_the_links_of_the_readme_lead_somewhere() -> None:
    found = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert found and all((ROOT / link).exists() for link in found)


def test_the_page_on_results_names_every_figure_column_and_file(names: dict[str, Any]) -> None:
    run = dc.simulate(names["task"], names["data"], dc.methods.Ditto(steps=1), rounds=1, out="runs/second")
    page = (ROOT / "docs" / "results.md").read_text()
    words = set(re.findall(r"[\w.]+", page))
    for figure in run.summary():
        model, _, rest = figure.partition(".")
        assert model in words
        pieces = re.split(r"[.@]", rest)[1:] if rest else []
        assert all(piece in words for piece in pieces), figure
    columns = {*run.rounds.columns, *(c for c in run.clients.columns if "_loss" not in c and "_accuracy" not in c)}
    assert columns <= words
    assert {path.name for path in Path("runs/second").iterdir()} <= words
