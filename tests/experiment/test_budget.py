"""Accuracy per byte: which round a budget allows, what a target costs, and the count of the papers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import descant as dc
from descant.cli import options
from descant.cli.app import app
from descant.errors import SettingError
from descant.experiment import Run
from descant.experiment.budget import Goals, costs, reaching, within
from descant.experiment.history import Federation, History


def run_of(
    test: list[float], valid: list[float] | None, spent: list[tuple[int, int]], *, higher: bool = True
) -> Run:
    """A run of two clients that are alike, evaluated before the first round (round 0) and after every round."""
    sizes = {part: np.array([3, 3]) for part in ("train", "valid", "test")}
    history = History("accuracy" if higher else "error", higher, Federation(["a", "b"], sizes))
    for t, (up, down) in enumerate(spent, start=1):
        history.rounds.append({"round": t, "bytes_up": up, "bytes_down": down, "examples": 6})
    for t in range(len(spent) + 1):
        columns = {f"test_{history.metric}": np.full(2, test[t])}
        if valid is not None:
            columns[f"valid_{history.metric}"] = np.full(2, valid[t])
        history.evaluated.setdefault("personal", {})[t] = columns
    return Run({"label": "made", "seed": 0, "data": {"name": "made", "settings": {}}}, history)


MADE = run_of([0.9, 0.2, 0.5, 0.4, 0.8], [0.9, 0.3, 0.2, 0.6, 0.5], [(10, 90)] * 4)


def test_the_round_is_chosen_among_those_that_the_budget_pays() -> None:
    assert within(MADE, 399) == (3, 0.4)  # by validation data
    assert within(MADE, 299) == (1, 0.2)
    assert within(MADE, 399, rule="last") == (3, 0.4)
    assert within(MADE, 299, rule="last") == (2, 0.5)
    assert within(MADE, 399, rule="best_on_test") == (2, 0.5)
    assert within(MADE, 10**9, first=4) == (4, 0.8)


def test_the_untrained_model_is_within_no_budget_and_reaches_no_target() -> None:
    assert within(MADE, 99) is None
    assert reaching(MADE, 0.85) is None


def test_a_target_costs_what_was_spent_until_it_was_first_met() -> None:
    assert reaching(MADE, 0.5) == (2, 200)
    assert reaching(MADE, 0.5, first=3) == (4, 400)
    assert reaching(MADE, 0.2) == (1, 100)


def test_the_papers_bill_the_next_round_too_in_numbers_of_32_bits() -> None:
    uneven = run_of([0.0, 0.1, 0.2, 0.3], None, [(4, 0), (8, 0), (12, 4)])
    assert costs(uneven.history) == {1: 4, 2: 12, 3: 28}
    assert costs(uneven.history, papers=True) == {0: 1, 1: 3, 2: 7, 3: 11}
    assert reaching(uneven, 0.2, papers=True) == (2, 7)
    assert within(uneven, 6, papers=True) == (1, 0.1)
    assert within(uneven, 2, papers=True) == (0, 0.0)  # the untrained model costs a round


def test_the_last_round_is_taken_where_there_are_no_validation_data() -> None:
    assert within(run_of([0.0, 0.9, 0.2], None, [(1, 1)] * 2), 100) == (2, 0.2)


def test_a_metric_that_falls_is_better_below_its_target() -> None:
    falling = run_of([0.9, 0.7, 0.4, 0.6], [0.9, 0.7, 0.5, 0.6], [(1, 0)] * 3, higher=False)
    assert reaching(falling, 0.5) == (2, 2)
    assert within(falling, 100) == (2, 0.4)


ROUNDS = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8
)


@given(ROUNDS, st.integers(1, 400), st.floats(0, 1), st.booleans())
def test_both_against_a_plain_search(
    rounds: list[tuple[float, float, int, int]], budget: int, target: float, papers: bool
) -> None:
    test, valid = ([0.5, *(row[i] for row in rounds)] for i in (0, 1))
    spent = [(row[2], row[3]) for row in rounds]
    run = run_of(test, valid, spent)
    bill, so_far = ({0: sum(spent[0]) / 4} if papers else {}), 0
    for t, (up, down) in enumerate(spent, start=1):
        so_far += up + down
        more = sum(spent[min(t, len(spent) - 1)])
        bill[t] = (so_far + more) / 4 if papers else so_far
    paid = [t for t in bill if bill[t] <= budget]
    best = min(paid, key=lambda t: (-valid[t], t)) if paid else None
    found = within(run, budget, papers=papers)
    assert (found[0] if found else None) == best
    first = next((t for t in bill if test[t] >= target), None)
    reached = reaching(run, target, papers=papers)
    assert reached == (None if first is None else (first, bill[first]))


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Synthetic(0, 0) as lp-proj's authors run it, for the two rounds that their target is billed."""
    lpproj = {
        "name": "lp-proj",
        "dim": 21,
        "lam": 1.0,
        "eta": 0.05,
        "lr": 0.1,
        "steps": 20,
        "batch": 64,
        "clip": 60,
    }
    return {
        "data": {"name": "synthetic", "alpha": 0.0, "beta": 0.0, "clients": 100, "samples": 202, "seed": "run"},
        "model": "linear",
        "rounds": 2,
        "mode": "vmap",
        "cohort": 0.1,
        "own_start": True,
        "seeds": 2,
        "methods": {
            "lp-proj-1": lpproj | {"p": 1, "run": {"trainers": "everyone"}},
            "lp-proj-2": lpproj | {"p": 2, "weight_decay": 0.001, "run": {"trainers": "everyone"}},
            "FedAvg": {"name": "fedavg", "lr": 0.1, "steps": 1, "batch": None, "clip": 60, "weighted": False},
        },
    }


def test_the_command_says_what_python_says_of_the_same_runs(tmp_path: Path) -> None:
    methods = {"alone": {"name": "local", "steps": 2}, "together": {"name": "fedavg", "steps": 1}}
    data = {"name": "synthetic", "clients": 4, "samples": 20, "dim": 4, "classes": 3}
    file = tmp_path / "budget.yaml"
    file.write_text(yaml.safe_dump({"data": data, "methods": methods, "rounds": 3, "mode": "vmap"}))
    out = ["budget", str(file), "--out", str(tmp_path / "runs"), "-q", "--budget", "500", "--target", "0.001"]
    told = CliRunner().invoke(app, [*out, "--json"])
    assert told.exit_code == 0, told.output
    rows = [row for line in told.stdout.splitlines() if (row := json.loads(line))["event"] == "budget"]
    runs = {run.config["label"]: run for run in map(Run.load, (tmp_path / "runs").glob("*seed*"))}
    for row in rows:
        run = runs[row["method"]]
        if row["budget"]:
            round, accuracy = within(run, 500) or (0, None)
            assert (row["value"], row["reached"]) == (accuracy, int(round > 0))
        else:
            assert (row["value"], row["reached"]) == ((reaching(run, 0.001) or (0, None))[1], 1)
        spent = run.rounds.filter(pl.col("round") <= (row["round"] or 0))["examples"].sum() / 4
        assert row["examples_per_client"] == (spent if row["reached"] else None)
        assert row["equal_compute"] is (False if row["reached"] else None)
    assert len(rows) == 4 and sum(row["reached"] for row in rows) == 4
    table = pl.read_csv(tmp_path / "runs" / "budget.csv")
    assert table["equal_compute"].to_list() == [row["equal_compute"] for row in rows]
    again = CliRunner().invoke(app, out)  # its own table is replaced
    assert again.exit_code == 0, again.output
    shown = " ".join(CliRunner().invoke(app, out, env={"COLUMNS": "120"}).stdout.split())
    assert re.search(
        r"Within 500 B: not at equal compute: example gradients a client are \d+ \(together\); \d+", shown
    )
    assert "To accuracy 0.001: not at equal compute" in shown
    assert "A target is reached in" in shown and "– :" not in shown
    without = CliRunner().invoke(app, [*out[:-4], "--budget", "1"], env={"COLUMNS": "120"}).stdout
    untrained = "round 0, the untrained model, costs nothing and does not count."
    assert "target" not in without and f"– : no round was evaluated within the budget; {untrained}" in without
    assert f"is as good; {untrained}" in shown
    papers = CliRunner().invoke(app, [*out, "--papers"], env={"COLUMNS": "120"}).stdout
    assert "is as good." in papers and "round 0" not in papers, "there it counts, and costs a round"
    assert CliRunner().invoke(app, out).exit_code == 0
    (left := tmp_path / "runs" / "budget.csv").write_text(kept := left.read_text() + "mine,,,,,,,,\n")
    told = CliRunner().invoke(app, out)
    assert told.exit_code and "budget.csv' was changed since descant wrote it" in str(told.exception)
    assert left.read_text() == kept


def test_a_table_of_somebody_else_is_kept_and_nothing_is_run(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "budget.csv").write_text("my own figures")
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump(settings | {"budgets": [5000]}, sort_keys=False))
    told = CliRunner().invoke(app, ["budget", str(tmp_path / "budget.yaml"), "--out", str(tmp_path / "runs"), "-q"])
    assert told.exit_code and "budget.csv' is there already, and descant did not write it" in str(told.exception)
    assert (tmp_path / "runs" / "budget.csv").read_text() == "my own figures"
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_table_that_is_written_while_methods_run_is_kept(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, carried_out = tmp_path / "runs" / "budget.csv", options.carried_out

    def meanwhile(*given: Any) -> Any:
        found = carried_out(*given)
        mine.write_text("my own figures")
        return found

    monkeypatch.setattr(options, "carried_out", meanwhile)
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump(settings | {"budgets": [5000]}, sort_keys=False))
    told = CliRunner().invoke(app, ["budget", str(tmp_path / "budget.yaml"), "--out", str(tmp_path / "runs"), "-q"])
    assert mine.read_text() == "my own figures"
    assert told.exit_code and "budget.csv' is there already, and descant did not write it" in str(told.exception)


@pytest.mark.slow
def test_lp_proj_reaches_the_papers_target_for_4620_numbers(settings: dict[str, Any], tmp_path: Path) -> None:
    """Table 5 of lp-proj, Synthetic(0, 0): 4,620 at .6, which is 2 rounds of 21 (100 + 10)."""
    file = tmp_path / "budget.yaml"
    file.write_text(yaml.safe_dump(settings | {"budgets": [5000], "targets": [0.6]}, sort_keys=False))
    out = ["budget", str(file), "--out", str(tmp_path / "runs"), "-q"]
    told = CliRunner().invoke(app, [*out, "--papers", "--json"])
    assert told.exit_code == 0, told.output
    rows = [row for line in told.stdout.splitlines() if (row := json.loads(line))["event"] == "budget"]
    costs = {row["method"]: row["value"] for row in rows if row["target"] == 0.6}
    assert costs == {"lp-proj-1": 4620, "lp-proj-2": 4620, "FedAvg": None}
    reached = {row["method"]: row["reached"] for row in rows if row["budget"]}
    assert reached == {"lp-proj-1": 2, "lp-proj-2": 2, "FedAvg": 0}  # a round of it is 12,200
    assert (tmp_path / "runs" / "budget.csv").is_file()
    printed = CliRunner().invoke(app, [*out, "--target", "0.6", "--budget", "10kB"], env={"COLUMNS": "120"})
    assert "9.2 kB ±0 B" in " ".join(printed.stdout.split())  # one round of 9,240 bytes
    assert "never" in printed.stdout
    frame = dc.Comparison([Run.load(folder) for folder in (tmp_path / "runs").glob("*seed*")]).budget("10 kB")
    assert dict(zip(frame["method"], frame["reached"], strict=True)) == reached


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "budgets, targets"),
        ({"budgets": ["3 apples"]}, r"budgets\[0\]"),
        ({"budgets": [100, 0]}, r"budgets\[1\]"),
        ({"budgets": True}, r"budgets\[0\]"),
        ({"budgets": 1.5}, r"budgets\[0\] = 1\.5: it must be a whole number of bytes"),
        ({"budgets": "1.0005 kB"}, r"budgets\[0\] = '1\.0005 kB': it must be a whole number"),
        ({"budgets": float("inf")}, r"budgets\[0\] = inf"),
        ({"budgets": [1000, "1 kB"]}, "twice"),
        ({"targets": ["high"]}, r"targets\[0\] = 'high'"),
        ({"budgets": ["30 kB"], "papers": True}, r"budgets\[0\] = '30 kB': the papers' count is in numbers"),
        ({"targets": [float("nan")]}, r"targets\[0\]"),
        ({"targets": [0.5], "papers": "yes"}, "papers"),
    ],
)
def test_goals_that_are_none_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        Goals.of(**values)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        *((5, 5), ("5", 5), ("300 kB", 300_000), ("1.5MB", 1_500_000), (".5 GB", 5 * 10**8), ("2k", 2000)),
        *((1e6, 10**6), ("5.", 5), ("4.35 kB", 4350), ("0.29 MB", 290_000)),  # which floating numbers miss
    ],
)
def test_budgets_as_people_write_them(written: int | str, size: int) -> None:
    assert Goals.of(budgets=written).budgets == (size,)


@pytest.mark.parametrize(("wrong", "meant"), [("target=0.5", "targets"), ("budget=1000", "budgets")])
def test_a_setting_that_there_is_not_is_refused_before_anything_else(
    wrong: str, meant: str, tmp_path: Path
) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text("data: synthetic\nmethods: [fedavg]\nrounds: 1\n")
    told = CliRunner().invoke(app, ["budget", str(file), "--set", wrong, "--out", str(tmp_path / "runs")])
    assert isinstance(told.exception, SettingError)
    name = wrong.partition("=")[0]
    assert f"there is no setting called '{name}'. Did you mean '{meant}'?" in str(told.exception)


def test_figures_that_cannot_be_are_refused() -> None:
    compared = dc.Comparison([MADE])
    with pytest.raises(SettingError, match="first = 9: made"):
        compared.budget("1 kB", first=9)
    untested = run_of([0.1, 0.2], [0.1, 0.2], [(1, 1)])
    for columns in untested.history.evaluated["personal"].values():
        del columns["test_accuracy"]
    with pytest.raises(SettingError, match="evaluate: made was not evaluated on test data"):
        dc.Comparison([untested]).budget("1 kB")


def test_one_seed_has_no_spread_and_bytes_are_told_from_numbers() -> None:
    (row,) = dc.Comparison([MADE]).budget(targets=0.5).to_dicts()
    assert row["spread"] is None and row["value"] == 200 and row["unit"] == "bytes"
    (row,) = dc.Comparison([MADE]).budget(targets=0.5, papers=True, first=1).to_dicts()
    assert row["value"] == 75 and row["unit"] == "numbers"


def test_a_percentage_of_a_metric_that_is_a_share_is_refused_with_the_share() -> None:
    accuracy = dc.Comparison([MADE])
    with pytest.raises(SettingError, match=r"targets\[1\] = 80: .*'accuracy' is a share: give 0\.8 for 80 %"):
        accuracy.budget(targets=[0.5, 80])
    with pytest.raises(SettingError, match="give a number from 0 to 1"):
        accuracy.budget(targets=800)
    for target in (0, -1):
        with pytest.raises(SettingError, match=rf"targets\[0\] = {target}: every model reaches that"):
            accuracy.budget(targets=target)
    assert accuracy.budget(targets=1)["reached"].to_list() == [0]
    error = dc.Comparison([run_of([9.0, 3.0], None, [(1, 1)], higher=False)])
    assert error.budget(targets=80)["reached"].to_list() == [1], "an error may be above 1"
    in_percent = dc.Comparison([run_of([50.0, 90.0], None, [(1, 1)])])
    assert in_percent.budget(targets=80)["reached"].to_list() == [1], "so may an accuracy of one's own"


def test_the_command_refuses_a_percentage_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump({"data": {"name": "synthetic"}, "methods": ["fedavg"], "rounds": 1}))
    with pytest.raises(SettingError, match=r"targets\[0\] = 80.*give 0\.8"):
        CliRunner().invoke(
            app, ["budget", str(file), "--target", "80", "-o", str(tmp_path / "out")], catch_exceptions=False
        )
    assert not (tmp_path / "out").exists()
