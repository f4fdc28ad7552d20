"""Trials of Hush and of its rivals: as many for each, the best of them on validation data, and attacks."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

import descant as dc
from descant.catalog import build
from descant.experiment.grid import comparison
from descant.experiment.settings import read_settings
from descant.sealed import read_json, write_json
from tests.examples.test_examples import EXAMPLES, inside, python

HUSH = sorted(inside("hush/choose.py")["DATA"])
DIGITS = {"data": {"name": "digits", "clients": 6, "seed": "run"}, "rounds": 3, "cohort": 3}
Choose = Callable[..., str]


@pytest.fixture(scope="module")
def choose() -> Iterator[Choose]:
    """The script with a data set more, `small`: what it prints."""
    program = inside("hush/choose.py")
    small = DIGITS | {"model": {"name": "mlp", "hidden": [20]}}

    def called(*arguments: str) -> str:
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["choose.py", *arguments]), redirect_stdout(out):
            program["main"]()
        return out.getvalue()

    with mock.patch.dict(program["DATA"], small=small):
        yield called


def trials(
    name: str, folder: Path, *labels: str, overrides: Sequence[str] = (), by: Choose | None = None
) -> dict[str, Any]:
    """The settings of trials on a data set, as the script writes them."""
    path = folder / "trials.yaml"
    told = ("trials", name, *labels)
    path.write_text(python("hush/choose.py", *told, cwd=folder) if by is None else by(*told))
    return read_settings(path, overrides)


@pytest.fixture(scope="module")
def tried(choose: Choose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two trials, with two seeds each."""
    folder = tmp_path_factory.mktemp("tried")
    settings = trials("small", folder, "Local", overrides=["mode=vmap", "seeds=[100, 101]"], by=choose)
    some = {label: settings["methods"][label] for label in list(settings["methods"])[:2]}
    list(comparison(settings | {"methods": some}, folder / "trials").run())
    return folder / "trials"


def copied(tried: Path, folder: Path) -> list[Path]:
    """The folders of these four runs, as copies of a test's own: by rate, then by seed."""
    shutil.copytree(tried, folder)
    return sorted((path.parent for path in folder.glob("*/run.json")), key=lambda path: path.name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rounds": 2}, "rounds = 3 and not 2"),
        ({"cohort": 2}, "cohort = 3 and not 2"),
        ({"data": {"name": "digits", "clients": 6, "labels": 3, "seed": "run"}}, "data.labels = None and not 3"),
        ({"model": {"name": "mlp", "hidden": [5]}}, "model.hidden = [20] and not [5]"),
        ({"method": {"batch": 5}}, "method.batch = 10 and not 5"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_runs_that_are_called_like_trials_and_are_none_are_refused(
    change: dict[str, Any], told: str, choose: Choose, tried: Path, tmp_path: Path
) -> None:
    """As those of a smoke test beside them."""
    copied(tried, tmp_path / "runs")
    settings = trials("small", tmp_path, "Local", overrides=["mode=vmap", "seeds=[100]"], by=choose)
    label, spec = next(iter(settings["methods"].items()))
    settings |= {name: value for name, value in change.items() if name != "method"}
    settings["methods"] = {label: spec | change.get("method", {})}
    list(comparison(settings, tmp_path / "runs").run())
    with pytest.raises(SystemExit, match=f"local-lr.* is not the trial 'Local .*{re.escape(told)}.*: give folders"):
        choose("best", "small", str(tmp_path / "runs"))


def test_a_trial_of_a_method_that_computed_otherwise_then_is_refused(
    choose: Choose, tried: Path, tmp_path: Path
) -> None:
    path = copied(tried, tmp_path / "runs")[0] / "run.json"
    about, _ = read_json(path)
    about["config"]["revision"] = 9
    write_json(path, about)
    with pytest.raises(SystemExit, match=r"'Local .* a method of revision 1 and not 9: give folders"):
        choose("best", "small", str(tmp_path / "runs"))


def test_a_trial_that_was_run_twice_with_a_seed_is_refused(choose: Choose, tried: Path, tmp_path: Path) -> None:
    first, *_ = copied(tried, tmp_path / "runs")
    shutil.copytree(first, tmp_path / "again" / first.name)
    with pytest.raises(SystemExit, match=r"runs.* and .*again.* both hold 'Local .*' with seed 100: leave one"):
        choose("best", "small", str(tmp_path / "runs"), str(tmp_path / "again"))


def test_trials_that_cannot_be_read_are_left_out_by_name(
    choose: Choose, tried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = yaml.safe_load(choose("best", "small", str(tried), "--partial"))["methods"]["Local"]
    first, second, third, last = copied(tried, tmp_path / "runs")
    rate = {path: dc.load(path).config["method"]["lr"] for path in (first, second, third, last)}
    assert rate[first] == rate[second] != rate[third] and whole["lr"] in rate.values()
    (first / "run.json").write_text("{}")
    table = second / "rounds.parquet"
    table.write_bytes(table.read_bytes()[:50])
    kept = yaml.safe_load(choose("best", "small", str(tmp_path / "runs"), "--partial"))["methods"]["Local"]
    assert kept["lr"] == rate[third]
    said = capsys.readouterr().err
    assert said.count("# left out: ") == 2 and first.name in said and str(table) in said


def test_trials_that_were_interrupted_are_chosen_from_where_that_is_asked_for(
    choose: Choose, tried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, last = copied(tried, tmp_path / "runs")
    with pytest.raises(SystemExit, match=r"of Local: 2 of 12 settings have all seeds\. Run .* with --partial"):
        choose("best", "small", str(tmp_path / "runs"))
    assert "# Local: 2 of 12 settings have all seeds (2)\n" in capsys.readouterr().err
    (last / "run.json").unlink()  # as a run that was begun
    with pytest.raises(SystemExit, match="of Local: 1 of 12 settings have all seeds"):
        choose("attacks", "small", str(tmp_path / "runs"))
    assert "methods:\n  Local:" in choose("best", "small", "--partial", str(tmp_path / "runs"))
    said = capsys.readouterr().err
    assert "# Local: 1 of 12 settings have all seeds (2)\n" in said and "tried on 1 of 2 seeds: Local | lr" in said


def test_settings_that_collapsed_were_tried_and_a_method_without_another_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = inside("hush/choose.py")
    labels = ("Local", "Hush 1/9, 3 bits", "Hush 1/10, two rates")
    figures = {
        trial: dict.fromkeys((100, 101, 102), 0.5 if label == "Local" and n else float("-inf"))
        for label in labels
        for n, trial in enumerate(program["trials"]("digits", label))
    }
    with mock.patch.dict(program["chosen"].__globals__, accuracies=lambda *_: figures):
        kept = program["chosen"]("digits", [Path("runs")], False)
    _, second, *_ = program["trials"]("digits", "Local").values()
    assert kept == {"Local": second}
    *counted, named = capsys.readouterr().err.splitlines()
    order = [label for label in program["METHODS"] if label in labels]
    assert counted == [f"# {label}: 12 of 12 settings have all seeds (3)" for label in order]
    assert named == f"# every setting collapsed, with a seed or more: {'; '.join(order[1:])}"


@pytest.mark.slow
def test_short_trials_are_narrowed_to_the_three_best_in_all_rounds(choose: Choose, tmp_path: Path) -> None:
    with mock.patch.dict(inside("hush/choose.py")["SHORT"], small=2) as short:
        assert short["small"] < DIGITS["rounds"]
        settings = trials("small", tmp_path, "Local", "--short", overrides=["mode=vmap", "seeds=[100]"], by=choose)
        few = {label: settings["methods"][label] for label in list(settings["methods"])[3:8]}
        assert (settings["rounds"], settings["evaluate"]["parts"]) == (2, ["valid"])
        runs = list(comparison(settings | {"methods": few}, tmp_path / "short").run())
        valid = {cell.label: run.summary()["personal.valid_accuracy.mean@last"] for cell, run in runs}
        first = sorted(few, key=lambda label: -valid[label])[:3]
        narrowed = yaml.safe_load(choose("narrow", "small", str(tmp_path / "short"), "--partial"))
        assert narrowed["methods"] == {label: few[label] for label in first}
        assert narrowed["rounds"] == DIGITS["rounds"] and narrowed["seeds"] == [100, 101, 102]
        best = yaml.safe_load(choose("best", "small", "--short", str(tmp_path / "short"), "--partial"))
        assert best["methods"] == {"Local": few[first[0]]} and best["rounds"] == DIGITS["rounds"]
        with pytest.raises(SystemExit, match="rounds = 3 and not 2"):
            choose("best", "small", str(tmp_path / "short"), "--partial")


def test_a_single_run_is_no_folder_of_trials(choose: Choose, tried: Path) -> None:
    run = next(tried.glob("*/run.json")).parent
    with pytest.raises(SystemExit, match=f"{run.name} is a single run: give the folder that holds it, .*trials$"):
        choose("best", "small", str(run))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", HUSH)
def test_trials_of_hush_and_its_rivals_are_as_many_for_each_and_can_be_run(name: str, tmp_path: Path) -> None:
    """Without the data of some: every method is made, and checked."""
    settings = trials(name, tmp_path)
    labels = [label.split(" | ")[0] for label in settings["methods"]]
    tried, seeds = {"shakespeare": (6, 1), "cifar": (12, 1)}.get(name, (12, 3))
    assert {labels.count(label) for label in labels} == {tried} and len(set(labels)) == 38
    assert settings["seeds"] == [100, 101, 102][:seeds]  # none of those that the best is run with
    assert len(comparison(settings, None).cells) == len(labels) * seeds
    gradients = {build("methods", made_of(made)).work.steps for made in settings["methods"].values()}
    assert gradients == {20, 40}


def made_of(spec: dict[str, object]) -> dict[str, object]:
    """A method's own part of a spec."""
    return {name: value for name, value in spec.items() if name != "run"}


@pytest.mark.slow
def test_the_best_trials_of_hush_make_a_table_beside_ditto(choose: Choose, tmp_path: Path) -> None:
    """On other data, with few clients and rounds: trials, the best of each, its runs, and their table."""
    three = ("Local", "Ditto", "Hush 1/25")
    settings = trials("small", tmp_path, *three, overrides=["mode=vmap", "seeds=[100, 101]"], by=choose)
    settings["methods"] = {k: v for k, v in settings["methods"].items() if k.split(" | ")[0] in three}
    tried = list(comparison(settings, tmp_path / "trials").run())
    assert len(tried) == 36 * 2
    (tmp_path / "best.yaml").write_text(choose("best", "small", str(tmp_path / "trials")))
    best = yaml.safe_load((tmp_path / "best.yaml").read_text())["methods"]
    for label in three:
        figures: dict[str, list[float]] = {}
        for cell, run in tried:
            if cell.label.split(" | ")[0] == label:
                valid = run.summary()["personal.valid_accuracy.mean@chosen_on_valid"]
                figures.setdefault(cell.label, []).append(valid if run.collapse is None else float("-inf"))
        means = {trial: sum(of) / 2 for trial, of in figures.items()}
        kept = [trial for trial in means if settings["methods"][trial] == best[label]]
        assert len(kept) == 1 and means[kept[0]] == max(means.values())
    runs = comparison(read_settings(tmp_path / "best.yaml", ["mode=vmap", "seeds=2"]), tmp_path / "best").run()
    compared = dc.Comparison(run for _, run in runs)
    heads, _, *lines = python("hush/table.py", "best", cwd=tmp_path).splitlines()
    assert heads.startswith("| method | test accuracy | less Ditto | worst tenth | of the gain |")
    rows = {cells[1]: cells[2:-1] for cells in ([cell.strip() for cell in line.split("|")] for line in lines)}
    assert set(rows) == set(three)
    figures = {row["method"]: row for row in compared.table().iter_rows(named=True)}
    apart = {row["method"]: row for row in compared.differences("Ditto").iter_rows(named=True)}
    hush, ditto = figures["Hush 1/25"], figures["Ditto"]
    assert rows["Hush 1/25"][0] == f"{hush['test_accuracy']:.4f}"
    assert rows["Hush 1/25"][1].startswith(f"{apart['Hush 1/25']['difference']:+.4f} (")
    gains = ditto["test_accuracy"] - figures["Local"]["test_accuracy"] >= 0.01
    assert (rows["Ditto"][3], rows["Local"][3]) == (("100 %", "0 %") if gains else ("–", "–"))
    assert rows["Ditto"][-2:] == ["1x", "1x"] and rows["Local"][-2:] == ["–", "–"]
    assert rows["Hush 1/25"][-2] == f"{ditto['bytes_up'] / hush['bytes_up']:,.0f}x"


@pytest.mark.slow
def test_attacks_take_the_two_rates_that_trials_chose(choose: Choose, tmp_path: Path) -> None:
    wanted = ("Local", "Ditto, two", "Hush 1/10, two")
    settings = trials("small", tmp_path, *wanted, overrides=["mode=vmap", "seeds=[100]"], by=choose)
    local = {k: v for k, v in settings["methods"].items() if k.startswith("Local")}
    assert len(settings["methods"]) == 36 and len(local) == 12
    few = {k: settings["methods"][k] for k in (*list(local)[:1], *list(settings["methods"])[12::8])}  # some of each
    list(comparison(settings | {"methods": few}, tmp_path / "trials").run())
    (tmp_path / "attacks.yaml").write_text(choose("attacks", "small", "--partial", str(tmp_path / "trials")))
    made, as_it_is = read_settings(tmp_path / "attacks.yaml"), read_settings(EXAMPLES / "hush" / "attacks.yaml")
    assert list(made["methods"]) == list(as_it_is["methods"])
    assert (made["attacks"], made["fractions"]) == (as_it_is["attacks"], as_it_is["fractions"])
    for label, spec in made["methods"].items():
        mean = spec["solver"] if spec["name"] == "ditto" else spec
        assert spec["name"] == "local" or mean["weighted"] is False
        assert spec.get("run") == as_it_is["methods"][label].get("run")
        rates = {"ditto": ("lr", "solver"), "hush": ("lr", "shared_lr")}.get(spec["name"], ("lr",))
        tried = [trial for trial in few.values() if trial["name"] == spec["name"]]
        pair = [{key: value for key, value in each.items() if key in rates} for each in tried]
        mine = {key: value for key, value in spec.items() if key in rates}
        if "solver" in mine:
            mine["solver"] = {key: value for key, value in mine["solver"].items() if key != "weighted"}
        assert mine in pair
