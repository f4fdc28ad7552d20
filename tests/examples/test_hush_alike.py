"""Tables and charts of Hush are of runs of one comparison."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import descant as dc
from tests.examples.test_examples import python
from tests.examples.test_hush_pages import SMALL, cells

HUSH = {"name": "hush", "lr": 0.1, "batch": 10, "steps": 1}


@pytest.fixture(scope="module")
def ditto(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The settings of a comparison of one method, and its folder."""
    folder = tmp_path_factory.mktemp("ditto") / "runs"
    methods = {"Ditto": {"name": "ditto", "lr": 0.1, "batch": 10, "steps": 1}}
    settings = SMALL | {"model": {"name": "mlp", "hidden": [5]}, "rounds": 1, "seeds": 1, "methods": methods}
    compare(settings, folder)
    return settings, folder


def compare(settings: dict[str, Any], folder: Path) -> None:
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    dc.compare(file, out=folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rounds": 2}, r"rounds \([12] or [12]\)"),
        ({"cohort": 3}, r"cohort \([34] or [34]\)"),
        ({"data": {"name": "digits", "clients": 6, "labels": 3, "seed": "run"}}, r"data\.labels \([23] or [23]\)"),
        ({"data": {"name": "synthetic", "clients": 6, "seed": "run"}}, r"data \(digits or synthetic\), model"),
        ({"model": {"name": "mlp", "hidden": [6]}}, r"model, model's parameters \(\d+ or \d+\)"),
        ({"attacks": "sign-flip", "malicious": 1}, r"attacks, malicious \((none or 1|1 or none)\)"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_runs_that_are_not_of_one_comparison_are_in_no_table_and_no_chart(
    change: dict[str, Any], told: str, ditto: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    settings, folder = ditto
    shutil.copytree(folder, tmp_path / "runs")
    compare(settings | {"methods": {"Hush": HUSH}} | change, tmp_path / "runs")
    for program, *rest in (("hush/table.py",), ("hush/chart.py", "chart.svg")):
        with pytest.raises(SystemExit, match=rf"differ in {told}.*: give a folder of one comparison"):
            python(program, "runs", *rest, cwd=tmp_path)
    python("hush/chart.py", "runs", "chart.svg", "One of them", "Ditto", cwd=tmp_path)


def test_methods_of_a_table_may_differ_in_what_they_send_and_how_they_are_run(
    ditto: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    settings, folder = ditto
    shutil.copytree(folder, tmp_path / "runs")
    run = {"codec": "sign", "downlink": {"name": "stc", "share": 0.1}, "aggregator": "coordinate-median"}
    made = settings["methods"]["Ditto"] | {"run": run | {"attacks": "sign-flip", "malicious": 0}}  # nobody attacks
    compare(settings | {"methods": {"other": made}, "mode": "loop", "seeds": [1]}, tmp_path / "runs")
    _, _, *lines = python("hush/table.py", "runs", cwd=tmp_path).splitlines()
    assert {cells(line)[0] for line in lines} == {"Ditto", "other"}


def test_a_single_run_is_told_from_a_folder_of_runs(ditto: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    run = next(ditto[1].glob("*/run.json")).parent
    for program, *rest in (("hush/table.py",), ("hush/chart.py", "chart.svg")):
        with pytest.raises(SystemExit, match=r"is a single run: give the folder that holds it, .*runs$"):
            python(program, str(run), *rest, cwd=tmp_path)
