"""The programs that make tables and charts of Hush from folders of runs, on small ones."""

from __future__ import annotations

import re
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
import torch
import vl_convert
import yaml
from torch import nn

import descant as dc
from tests.examples.test_examples import EXAMPLES, inside, python

VALID, TEST = (f"personal.{part}_accuracy.mean@chosen_on_valid" for part in ("valid", "test"))
SMALL: dict[str, Any] = {"data": {"name": "digits", "clients": 6, "seed": "run"}, "mode": "vmap", "rounds": 3}
SMALL |= {"evaluate": {"every": 1, "parts": ["valid", "test"]}, "cohort": 4, "seeds": 2, "keep_models": "none"}


def means(runs: list[dc.Run], figure: str) -> float:
    return sum(run.summary()[figure] for run in runs) / len(runs)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dc.robust.Robustness, Path]:
    """The attacks of Hush on fewer clients, under two attacks, with three aggregators each."""
    folder = tmp_path_factory.mktemp("attacks")
    settings = yaml.safe_load((EXAMPLES / "hush" / "attacks.yaml").read_text()) | SMALL
    some = ("Local", "Ditto, mean", "Ditto, median", "Ditto, Krum", "Hush, mean", "Hush, median", "Hush, Krum")
    settings["methods"] = {label: settings["methods"][label] for label in some}
    settings["attacks"] = {label: settings["attacks"][label] for label in ("sign flip", "ALIE")}
    (folder / "attacks.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    found = dc.robustness(folder / "attacks.yaml", out=folder / "runs")
    found.save(folder / "runs")
    return found, folder


@pytest.mark.slow
def test_the_best_aggregator_of_each_is_chosen_on_validation_data(attacked: Any) -> None:
    found, folder = attacked
    heads, _, *lines = python("hush/robust.py", "runs", cwd=folder).splitlines()
    assert cells(heads)[0] == "attack"
    assert [cells(line)[0] for line in lines] == ["clean", "sign flip, 20 %", "ALIE, 20 %"]
    chosen = set()
    for line, (attack, fraction) in zip(lines, [("clean", 0.0), ("sign flip", 0.2), ("ALIE", 0.2)], strict=True):
        _, alone, ditto, by_ditto, hush, by_hush, gap = cells(line)
        here = {p.method: runs for p, runs in found.runs.items() if (p.attack, p.fraction) == (attack, fraction)}
        best = {}
        for name, by, figure in (("Ditto", by_ditto, ditto), ("Hush", by_hush, hush)):
            standing = {
                m: runs for m, runs in here.items() if m.startswith(name) and not any(r.collapse for r in runs)
            }
            best[name] = max(standing, key=lambda method: means(standing[method], VALID))
            assert best[name] == f"{name}, {by}" and figure == f"{means(here[best[name]], TEST):.4f}"
            chosen.add(best[name])
        assert alone == f"{means(here['Local'], TEST):.4f}"
        by_seed = [
            ours.summary()[TEST] - theirs.summary()[TEST]
            for ours, theirs in zip(here[best["Hush"]], here[best["Ditto"]], strict=True)
        ]
        assert gap.startswith(f"{sum(by_seed) / len(by_seed):+.4f}")
    assert len(chosen) > 2, "other attacks, other aggregators"


@pytest.fixture(scope="module")
def attacked_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The settings of a very small table of robustness, and its folder."""
    folder = tmp_path_factory.mktemp("once") / "runs"
    work = {"lr": 0.1, "batch": 10, "steps": 1}
    methods = {"Local": {"name": "local", **work}, "Ditto, mean": {"name": "ditto", **work}}
    methods["Hush, mean"] = {"name": "hush", **work}
    settings = SMALL | {"rounds": 1, "seeds": 1, "methods": methods}
    settings |= {"attacks": ["sign-flip", "ipm"], "fractions": [0, 0.2]}
    robustness(settings, folder)
    return settings, folder


def robustness(settings: dict[str, Any], folder: Path) -> None:
    """As `descant robustness` does without its page, into a folder that may hold runs of earlier settings."""
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    dc.robustness(file, out=folder).table().write_csv(folder / "robustness.csv")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"methods": {"Local": {"name": "local", "lr": 0.2, "batch": 10, "steps": 1}}},
            "'Local' in runs differ in method.lr:",
        ),
        ({"rounds": 2}, "'.*' in runs differ in rounds:"),
        (
            {"data": {"name": "digits", "clients": 6, "labels": 3, "seed": "run"}},
            "'.*' in runs differ in data.labels:",
        ),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_runs_of_earlier_settings_in_a_folder_of_attacks_are_refused(
    change: dict[str, Any], told: str, attacked_once: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    settings, folder = attacked_once
    shutil.copytree(folder, tmp_path / "runs")
    changed = settings | change | {"methods": settings["methods"] | change.get("methods", {})}
    robustness(changed, tmp_path / "runs")
    with pytest.raises(SystemExit, match=rf"the runs of {told} run descant robustness with each .* of its own"):
        python("hush/robust.py", "runs", cwd=tmp_path)


def test_methods_that_the_last_table_of_attacks_has_not_are_in_none(
    attacked_once: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    settings, folder = attacked_once
    _, _, *lines = python("hush/robust.py", str(folder), cwd=tmp_path).splitlines()
    runs = {run.config["label"]: run for run in map(dc.load, folder.glob("local*"))}
    clean, attacked = (f"{runs[label].summary()[TEST]:.4f}" for label in ("Local", "Local, sign-flip 20 %"))
    assert len(runs) == 2 and clean != attacked, "where somebody attacks, figures are of the others"
    assert [cells(line)[1] for line in lines] == [clean, attacked, attacked]
    shutil.copytree(folder, tmp_path / "runs")
    methods = {label: spec for label, spec in settings["methods"].items() if label != "Local"}
    robustness(settings | {"methods": methods}, tmp_path / "runs")
    _, _, *lines = python("hush/robust.py", "runs", cwd=tmp_path).splitlines()
    assert [cells(line)[1] for line in lines] == ["–"] * 3


def test_a_folder_without_a_table_of_robustness_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no robustness\.csv in .*: give the folder that descant robustness"):
        python("hush/robust.py", str(tmp_path), cwd=tmp_path)


def test_a_table_of_attacks_has_no_head_where_a_method_is_missing(
    attacked_once: tuple[dict[str, Any], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, folder = attacked_once
    shutil.copytree(folder, tmp_path / "runs")
    methods = {label: spec for label, spec in settings["methods"].items() if not label.startswith("Hush")}
    robustness(settings | {"methods": methods}, tmp_path / "runs")
    program = inside("hush/robust.py")
    capsys.readouterr()
    told = r"no runs of Hush under clean .*: their labels begin with 'Hush, ', and there are Local; Ditto, mean$"
    with (
        mock.patch.object(sys, "argv", ["robust.py", str(tmp_path / "runs")]),
        pytest.raises(SystemExit, match=told),
    ):
        program["main"]()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("metric", "low", "high", "ends"),
    [
        ("accuracy", -0.7, 2.4, (0.0, 1.0)),
        ("accuracy", 0.62, 1.3, (0.6, 1.0)),
        ("accuracy", 0.82, 0.9, (0.82, 0.9)),
        ("squared_error", 0.5, 2.0, (0.4, 2.0)),
    ],
)
def test_the_axis_of_a_chart_ends_with_the_accuracies_that_there_are(
    metric: str, low: float, high: float, ends: tuple[float, float]
) -> None:
    program = inside("hush/chart.py")
    rows = [{"method": m, "bytes": b, "mean": 0.85, "joined": None, "aside": 0} for m, b in (("a", 10), ("b", 99))]
    frame = pl.DataFrame([row | {"low": low, "high": high} for row in rows], schema_overrides={"joined": pl.String})
    drawn = ET.fromstring(vl_convert.vegalite_to_svg(program["figure"](frame, metric, "").chart.to_dict()))
    ticks = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    told = [float(tick) for tick in ticks if re.fullmatch(r"\d\.\d+", tick)]
    assert (min(told), max(told)) == pytest.approx(ends)


@pytest.mark.slow
def test_the_chart_has_a_point_a_method_and_a_line_for_who_sends_nothing(tmp_path: Path) -> None:
    settings = yaml.safe_load((EXAMPLES / "hush.yaml").read_text()) | SMALL
    some = ("Local", "Ditto", "Hush 1/10", "Hush 1/27, 3 bits")
    settings["methods"] = {label: settings["methods"][label] for label in some}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    compared = dc.compare(tmp_path / "small.yaml", out=tmp_path / "runs")
    python("hush/chart.py", "runs", "pictures/chart.svg", "Small", cwd=tmp_path)
    root = ET.parse(tmp_path / "pictures" / "chart.svg").getroot()
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Small", "test accuracy", "bytes of all clients, up and down", *some} <= set(words)
    told = {element.get("aria-label", "") for element in root.iter("{http://www.w3.org/2000/svg}path")}
    drawn = {re.fullmatch(r"(?:.*: ([\d.]+)k; )?test accuracy: ([\d.]+); method: (.*)", text) for text in told}
    points = {found[3]: (float(found[1]), float(found[2])) for found in drawn if found}
    rows = {row["method"]: row for row in compared.table().iter_rows(named=True)}
    assert points.keys() == set(some) - {"Local"}
    for label, (kilobytes, accuracy) in points.items():
        assert 1000 * kilobytes == pytest.approx(rows[label]["bytes_up"] + rows[label]["bytes_down"], rel=1e-6)
        assert accuracy == pytest.approx(rows[label]["test_accuracy"], abs=1e-9)
    lines = {element.get("aria-label", "") for element in root.iter("{http://www.w3.org/2000/svg}line")}
    assert any(re.fullmatch(r"test accuracy: [\d.]+; method: Local", text) for text in lines)
    for label in points:  # Student's t with one degree of freedom: two seeds
        reach = next(
            re.search(r"low: ([-\d.]+); high: ([-\d.]+); ", text) for text in lines if text.endswith(label)
        )
        half = 12.706 * rows[label]["test_accuracy_spread"] / 2**0.5
        assert reach is not None and float(reach[2]) - float(reach[1]) == pytest.approx(2 * half, abs=1e-9)
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["chart.svg"]
    python("hush/chart.py", "runs", "one.svg", "One", "Hush 1/27, 3 bits", cwd=tmp_path)
    drawn_alone = (tmp_path / "one.svg").read_text()
    assert "method: Hush 1/27, 3 bits" in drawn_alone and "method: Ditto" not in drawn_alone
    with pytest.raises(SystemExit, match="no run in runs is called 'nobody': there are Ditto, Hush 1/10"):
        python("hush/chart.py", "runs", "one.svg", "One", "nobody", cwd=tmp_path)


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no runs in .*: give the folder that descant compare wrote to"):
        python("hush/chart.py", str(tmp_path), "chart.svg", cwd=tmp_path)


def test_a_chart_takes_the_place_of_nobodys_file(tmp_path: Path) -> None:
    (tmp_path / "mine.svg").write_text("mine")
    for name, why in (("mine.svg", "is no page or picture that descant wrote"), ("a.png", "call it .*a.svg")):
        with pytest.raises(SystemExit, match=why):
            python("hush/chart.py", str(tmp_path), str(tmp_path / name), cwd=tmp_path)
    assert (tmp_path / "mine.svg").read_text() == "mine" and not (tmp_path / "a.png").exists()


def test_a_table_says_who_collapsed_and_leaves_out_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = {"lr": 1e6, "batch": 10, "steps": 2}
    methods = {"Ditto": {"name": "ditto", **work}, "Hush": {"name": "hush", **work | {"lr": 0.1}}}
    settings = SMALL | {"model": "mlp", "methods": methods, "seeds": 1}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(settings))
    dc.compare(tmp_path / "two.yaml", out=tmp_path / "runs")
    (tmp_path / "runs" / "not-ours").mkdir()
    (tmp_path / "runs" / "not-ours" / "run.json").write_text("{}")
    _, _, *lines = python("hush/table.py", "runs", cwd=tmp_path).splitlines()
    rows = {cells(line)[0]: cells(line) for line in lines}
    assert rows.keys() == {"Ditto (1 of 1 collapsed)", "Hush"}
    assert rows["Hush"][-2:] == ["–", "–"] and rows["Hush"][4] == "–"
    assert "# left out: " in capsys.readouterr().err


def test_a_table_gives_the_share_of_the_gain_and_how_many_times_fewer_bytes() -> None:
    told = inside("hush/table.py")["cells"]
    row = {"method": "Hush", "test_accuracy": 0.8, "worst_10": 0.5, "bytes_up": 10_000, "bytes_down": 10_000}
    row |= {"collapsed": 0, "seeds": 5}
    base = row | {"method": "Ditto", "test_accuracy": 0.9, "bytes_up": 100_000, "bytes_down": 300_000}
    alone = row | {"method": "Local", "test_accuracy": 0.7, "bytes_up": 0, "bytes_down": 0}
    hush = ["Hush", "0.8000", "-0.1", "0.5000", "50 %", "10.0 kB", "20.0 kB", "10x", "20x"]
    assert told(row, base, alone, "-0.1", "accuracy") == hush
    assert told(base, base, alone, "", "accuracy")[4:] == ["100 %", "100.0 kB", "400.0 kB", "1x", "1x"]
    assert told(alone, base, alone, "", "accuracy")[4:] == ["0 %", "0", "0", "–", "–"]
    assert told(base, row, alone, "", "accuracy")[-2:] == ["0.1x", "0.05x"]
    little = base | {"test_accuracy": 0.709}  # less than a point
    assert told(row, little, alone, "", "accuracy")[4] == "–"
    assert told(row, base, None, "", "accuracy")[4] == "–"
    lost = base | {"collapsed": 2, "bytes_up": 2_500_000}
    assert told(lost, base, alone, "", "accuracy")[0] == "Ditto (2 of 5 collapsed)"
    assert told(lost, base, alone, "", "accuracy")[4:] == ["–", "2.5 MB", "2.8 MB", "–", "–"]


def test_a_table_begins_with_the_best_also_where_less_is_better(tmp_path: Path) -> None:
    place = inside("hush/table.py")["place"]
    figures = sorted([0.1, None, 0.3, float("nan"), 0.2], key=lambda figure: place(figure, True))
    assert figures[:3] == [0.3, 0.2, 0.1]
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    data = dc.FederatedData.from_arrays({client: (x, x.sum(1)) for client in ("a", "b")}, seed=0)
    rates = {"still": 1e-6, "Ditto": 0.1, "slow": 0.01}
    methods = {label: {"name": "ditto", "lr": lr} for label, lr in rates.items()}
    dc.compare(dc.Task(nn.Linear(2, 1), "squared_error"), data, methods, rounds=3, out=tmp_path / "runs")
    heads, _, *lines = python("hush/table.py", "runs", cwd=tmp_path).splitlines()
    assert cells(heads)[1] == "test squared_error"
    assert [cells(line)[0] for line in lines] == ["Ditto", "slow", "still"]


def test_a_point_of_the_chart_is_of_every_draw_of_the_data_with_one_seed(tmp_path: Path) -> None:
    methods = {"Ditto": {"name": "ditto", "lr": 0.1, "batch": 10, "steps": 2}}
    runs = []
    for draw in (0, 1):
        settings = SMALL | {"data": {"name": "digits", "clients": 6, "seed": draw}, "seeds": 1, "methods": methods}
        (tmp_path / "one.yaml").write_text(yaml.safe_dump(settings))
        runs += list(dc.compare(tmp_path / "one.yaml", out=tmp_path / "runs"))
    point = inside("hush/chart.py")["points"](dc.Comparison(runs), "accuracy").row(0, named=True)
    first, second = (run.summary()[TEST] for run in runs)
    assert first != second and point["mean"] == pytest.approx((first + second) / 2)
    assert point["low"] < min(first, second) and point["high"] > max(first, second)
