"""The demo: one dial, three answers, each with how sure it is."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from descant.cli import demo
from descant.errors import SettingError
from descant.experiment import Run
from descant.report import Report
from descant.report.advice import advice
from descant.report.gather import Experiment, gather
from tests.bad_input.calling import descant


def shown(folder: Path) -> str:
    console = Console(width=140, record=True, file=StringIO())
    demo.run_demo(folder, console, quiet=True)
    return console.export_text()


def test_every_method_has_as_many_trials_and_as_many_gradients() -> None:
    trials = demo._trials()
    assert set(trials) == {"Local", "Ditto", "FedAvg"}
    assert len({len(specs) for specs in trials.values()}) == 1
    for specs in trials.values():
        for spec in specs:
            assert spec["steps"] + spec.get("solver", {}).get("steps", 0) == demo._STEPS


def test_a_page_of_somebody_else_is_kept_and_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("my notes")
    with pytest.raises(SettingError, match=r"report\.html' is there already"):
        shown(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_interruption_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("descant.cli.demo.run_demo", stopped)
    monkeypatch.setattr("descant.datasets.fetch.fetch", stopped)
    for command in (["demo", "-o", str(tmp_path)], ["data", "fetch", "mnist", "--root", str(tmp_path)]):
        done = descant(*command, cwd=tmp_path)
        assert done.status == 130 and "interrupted; the same command goes on from here" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("panels", [1, 2])
def test_a_short_demo_prints_a_sentence_a_panel_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, panels: int
) -> None:
    for name, value in {
        "_ROUNDS": 1,
        "_TRIED": range(100, 101),
        "_SEEDS": range(2),
        "PANELS": demo.PANELS[:panels],
    }.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.chdir(Path(__file__).parents[2] if panels == 1 else tmp_path)
    text = shown(tmp_path)
    assert ("examples/first.yaml" in text) is (panels == 1), "files are named where they are"
    assert (
        len(re.findall(r"^Here: (train alone|personalize|share one model)\.", text, flags=re.MULTILINE)) == panels
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("Here: ") == panels and all(panel.title in page for panel in demo.PANELS)
    assert page.index("What to try next") > page.index("Settings</summary>")
    assert "trial 1" not in page, "what was tried is not what is reported"
    assert "Not at equal compute" not in page and "Not the same seeds" not in page


@pytest.mark.slow
def test_the_dial_turns_from_training_alone_to_one_model(tmp_path: Path) -> None:
    text = shown(tmp_path)
    answers = re.findall(r"^Here: (.*?)\.", text, flags=re.MULTILINE)
    assert answers == ["train alone", "personalize", "share one model"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["trials/differ/local-trial-2-*", "differ/local-*"])
def test_a_damaged_run_is_named_and_nothing_is_said_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    panel = replace(demo.PANELS[0], data={"clients": 4, "labels": 5})
    for name, value in {"_ROUNDS": 1, "_TRIED": range(100, 102), "_SEEDS": range(2), "PANELS": (panel,)}.items():
        monkeypatch.setattr(demo, name, value)
    shown(tmp_path)
    damaged = sorted(tmp_path.glob(place))[0]
    (damaged / "run.json").write_text("{")
    (tmp_path / "report.html").unlink()
    done = descant("demo", "-o", ".", "--quiet", cwd=tmp_path)
    assert done.status == 2 and done.out == "" and not (tmp_path / "report.html").exists()
    named = damaged.relative_to(tmp_path)
    assert f"{named / 'run.json'} is damaged" in done.err
    assert "remove that folder and run the same again" in done.err and "left out" not in done.err
    shutil.rmtree(damaged)
    assert "Here: " in shown(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three methods with three seeds."""
    panel = replace(demo.PANELS[0], data={"clients": 4, "labels": 5})
    methods = {name: specs[0] for name, specs in demo._trials().items()}
    with mock.patch.object(demo, "_ROUNDS", 2):
        grid = demo._grid(panel, methods, range(3), tmp_path_factory.mktemp("grid"))
    return [run for _, run in grid.run()]


def with_figures(runs: list[Run], figures: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> Experiment:
    [experiment] = gather(runs)
    values = {id(run): figures[entry.label][i] for entry in experiment.entries for i, run in enumerate(entry.runs)}
    name = f"personal.test_accuracy.mean@{experiment.rule}"
    monkeypatch.setattr(Run, "summary", lambda self, first=0: {name: values[id(self)]})
    return experiment


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        ({"Local": [0.9, 0.8, 0.7], "Ditto": [0.91, 0.78, 0.72], "FedAvg": [0.5, 0.4, 0.3]}, "train alone"),
        ({"Local": [0.8, 0.7, 0.6], "Ditto": [0.9, 0.8, 0.71], "FedAvg": [0.5, 0.4, 0.3]}, "personalize"),
        ({"Local": [0.5, 0.4, 0.3], "Ditto": [0.9, 0.78, 0.72], "FedAvg": [0.89, 0.8, 0.7]}, "share one model"),
    ],
)
def test_what_is_simpler_is_advised_where_nothing_speaks_against_it(
    runs: list[Run], figures: dict[str, list[float]], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = advice(with_figures(runs, figures, monkeypatch))
    assert said.startswith(f"Here: {wanted}.") and "paired over 3 seeds" in said
    assert ("which these seeds do not tell" in said or "is not told apart" in said) == (wanted != "personalize")


def test_two_that_are_level_are_called_so(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"Local": [0.9, 0.8, 0.7], "Ditto": [0.9, 0.8, 0.7], "FedAvg": [0.5, 0.4, 0.3]}
    assert "level with Ditto" in advice(with_figures(runs, same, monkeypatch))
    same = {"Local": [0.5, 0.4, 0.3], "Ditto": [0.9, 0.8, 0.7], "FedAvg": [0.9, 0.8, 0.7]}
    said = advice(with_figures(runs, same, monkeypatch))
    assert said.startswith("Here: share one model.") and "Ditto is level with it; so choose what is simpler" in said


def test_a_report_can_be_given_titles(runs: list[Run]) -> None:
    assert [experiment.title for experiment in Report(runs, titles=["Mine"]).experiments] == ["Mine"]


@pytest.mark.slow
def test_a_report_can_be_given_a_closing(runs: list[Run]) -> None:
    assert "What to try next" in Report(runs, closing=["descant list"]).html()
