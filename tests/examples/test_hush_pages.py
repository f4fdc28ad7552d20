"""The programs that make tables and charts of Hush from folders of runs, on small ones."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

import descant as dc
from tests.examples.test_examples import EXAMPLES, python

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


def test_a_folder_without_a_table_of_robustness_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no robustness\.csv in .*: give the folder that descant robustness"):
        python("hush/robust.py", str(tmp_path), cwd=tmp_path)


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
