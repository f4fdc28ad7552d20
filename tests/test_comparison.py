"""`compare`: methods side by side in Python, in memory or on the grid of the command line."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml

import descant as dc
from descant.callbacks import Callback, Stop
from descant.engine import Record, RoundRecord
from descant.errors import SettingError
from descant.experiment.grid import comparison
from descant.methods import FedAvg, Local
from descant.report import Report

DATA = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)
METHODS = {"Alone": Local(steps=1, batch=4), "Averaged": FedAvg(steps=1, batch=4)}
HOW: dict[str, Any] = {"rounds": 3, "mode": "vmap"}


@cache
def task(seed: int = 0) -> dc.Task:
    torch.manual_seed(seed)
    return dc.Task(torch.nn.Linear(4, 3))


@pytest.fixture(scope="module")
def compared() -> dc.Comparison:
    return dc.compare(task(), DATA, METHODS, seeds=3, **HOW)


def test_every_run_is_the_one_that_simulate_makes(compared: dc.Comparison) -> None:
    assert {label: [run.config["seed"] for run in runs] for label, runs in compared.runs.items()} == {
        "Alone": [0, 1, 2],
        "Averaged": [0, 1, 2],
    }
    alone = dc.simulate(task(), DATA, METHODS["Averaged"], seed=2, **HOW)
    assert compared.runs["Averaged"][2].clients.equals(alone.clients)
    assert list(compared) == [*compared.runs["Alone"], *compared.runs["Averaged"]]


def test_the_table_has_means_and_spreads_over_seeds(compared: dc.Comparison) -> None:
    table = compared.table()
    assert table["method"].to_list() == ["Alone", "Averaged"] and table["seeds"].to_list() == [3, 3]
    each = [run.summary() for run in compared.runs["Averaged"]]
    accuracies = [figures["personal.test_accuracy.mean@chosen_on_valid"] for figures in each]
    row = table.row(1, named=True)
    assert row["test_accuracy"] == pytest.approx(np.mean(accuracies))
    assert row["test_accuracy_spread"] == pytest.approx(np.std(accuracies, ddof=1))
    assert table["worse_than_alone"][0] is None and 0 <= row["worse_than_alone"] <= 1
    assert row["bytes_up"] == np.mean([figures["bytes_up"] for figures in each]) > 0
    with pytest.raises(SettingError, match="first = 9"):
        compared.table(first=9)


def test_differences_are_paired_over_seeds(compared: dc.Comparison) -> None:
    figure = "personal.test_accuracy.mean@chosen_on_valid"
    each = {label: [run.summary()[figure] for run in runs] for label, runs in compared.runs.items()}
    gaps = np.array(each["Averaged"]) - np.array(each["Alone"])
    row = compared.differences(against="Alone").row(0, named=True)
    assert (row["method"], row["against"], row["seeds"]) == ("Averaged", "Alone", 3)
    assert row["difference"] == pytest.approx(gaps.mean()) and row["wins"] == (gaps > 0).sum()
    reach = 4.303 * gaps.std(ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    assert (row["low"], row["high"]) == pytest.approx((gaps.mean() - reach, gaps.mean() + reach))
    best = compared.differences()
    assert best["against"].unique().to_list() == ["Alone" if gaps.mean() < 0 else "Averaged"]
    assert (best["difference"] <= 0).all()
    with pytest.raises(SettingError, match=r"no method of this comparison called 'Alon'\. Did you mean 'Alone'"):
        compared.differences(against="Alon")


def test_one_seed_has_no_interval() -> None:
    row = dc.compare(task(), DATA, METHODS, **HOW).differences().row(0, named=True)
    assert row["low"] is None and row["high"] is None and not row["sure"]


def test_it_is_shown_in_a_few_lines_and_as_a_table(compared: dc.Comparison) -> None:
    head, alone, averaged = repr(compared).split("\n")
    assert head == "Comparison(2 methods, 3 seeds, on synthetic: test accuracy"
    mean = compared.table()["test_accuracy"][1]
    assert alone.startswith("    Alone     0.") and averaged.startswith(f"    Averaged  {mean:.3f} ±")
    html = compared._repr_html_()
    assert html.count("<tr>") == 3 and compared.verdict() in html and f"{mean:.3f} ±" in html


@pytest.mark.slow
def test_it_makes_a_report(compared: dc.Comparison, tmp_path: Path) -> None:
    report = compared.report(tmp_path / "page.html", title="Two methods")
    assert isinstance(report, Report) and report.title == "Two methods"
    assert [entry.label for entry in report.experiments[0].entries] == ["Alone", "Averaged"]
    assert compared.verdict() in (tmp_path / "page.html").read_text()
    assert compared.plot("accuracy").to_dict()


def test_report_takes_runs_folders_and_comparisons(compared: dc.Comparison, tmp_path: Path) -> None:
    dc.simulate(task(), DATA, "local", label="kept", out=tmp_path / "kept", **HOW)
    run = dc.simulate(task(), DATA, "fedavg", label="here", **HOW)

    def labels(report: Report) -> list[str]:
        return [entry.label for experiment in report.experiments for entry in experiment.entries]

    assert labels(dc.report(run)) == ["here"]
    assert labels(dc.report(str(tmp_path))) == ["kept"]
    assert labels(dc.report(compared)) == ["Alone", "Averaged"]
    assert labels(dc.report([run, tmp_path / "kept", compared])) == ["here", "kept", "Alone", "Averaged"]
    dc.report(run, tmp_path / "tables", format="md")
    assert list((tmp_path / "tables").glob("*.md"))
    with pytest.raises(SettingError, match="runs = 3: it must be a run, a comparison"):
        dc.report(3)  # type: ignore[arg-type]


def test_report_is_a_function_whichever_way_it_came(compared: dc.Comparison) -> None:
    import descant.report
    from descant.report import Entry

    assert dc.report is descant.report and callable(dc.report) and Entry is vars(descant.report)["Entry"]


def test_a_function_of_the_seed_deals_the_data_anew() -> None:
    def dealt(seed: int) -> dc.FederatedData:
        return dc.data.synthetic(clients=5, samples=30, dim=4, classes=3, seed=seed)

    drawn = dc.compare(task(), dealt, METHODS, seeds=[3, 4], **HOW)
    first, second = (run.history.federation.labels for run in drawn.runs["Alone"])
    assert first is not None and second is not None and not np.array_equal(first, second)


def test_a_settings_file_is_the_comparison_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    methods = {"one": {"name": "local", "steps": 1}, "two": {"name": "fedavg", "steps": 1}}
    values = {"data": {"name": "synthetic", "clients": 4, "samples": 20}, "methods": methods, "rounds": 2}
    file.write_text(yaml.safe_dump(values))
    list(comparison(values | {"seeds": 2}, tmp_path / "grid").run())
    records: list[Record] = []
    found = dc.compare(file, out=tmp_path / "grid", seeds=2, progress=records.append)
    assert not records and found.table()["seeds"].to_list() == [2, 2]
    assert dc.compare(str(file), rounds=3).runs["one"][0].config["rounds"] == 3
    with pytest.raises(SettingError, match=r"data: the settings file .*small\.yaml has them already"):
        dc.compare(file, DATA)


def test_callbacks_look_on_at_every_run() -> None:
    class Impatient(Callback):
        def __init__(self) -> None:
            self.labels: list[str] = []

        def on_start(self, config: dict[str, Any]) -> None:
            self.labels.append(config["label"])

        def on_round(self, record: RoundRecord) -> Stop | None:
            return Stop("enough") if record.round == 2 else None

    impatient = Impatient()
    found = dc.compare(task(), DATA, METHODS, callbacks=[impatient], **HOW)
    assert impatient.labels == ["Alone", "Averaged"]
    assert [run.stopped.round for run in found if run.stopped] == [2, 2]
    assert "was stopped after round 2 of 3: enough" in found._repr_html_()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": None}, "a comparison needs 'methods'"),
        ({"methods": [Local(), Local(steps=2)]}, "methods: 'local' stands twice; give labels"),
        ({"methods": {"a": Local}}, r"methods\.a is a class: make an object of it, as in Local\(\)"),
        ({"methods": {"a": 3}}, r"methods\.a = 3"),
        ({"methods": {"a": {"name": "local", "lr": -1}}}, r"methods\.a\.lr = -1"),
        ({"methods": {"a": {"name": "local", "run": {"rounds": 0}}}}, r"methods\.a\.run\.rounds = 0"),
        ({"seeds": [1, 1]}, "1 stands twice"),
        ({"seed": 3}, "'seed' is a setting of a single run"),
        ({"label": "x"}, "'label' is a setting of a single run"),
        ({"overwrite": True}, "overwrite: runs of a comparison"),
        ({"round": 3}, "no setting called 'round'. Did you mean 'rounds'"),
        ({"data": None}, r"data: a comparison needs it, as in descant\.compare\("),
        ({"data": [1]}, r"data is a list: it must be a descant\.FederatedData"),
        ({"progress": "yes"}, "progress = 'yes': it must be true or false"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_is_said_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"task": task(), "data": DATA, "methods": METHODS} | HOW
    with pytest.raises(SettingError, match=message):
        dc.compare(**given | changes)


def test_a_method_may_have_settings_of_the_run_for_itself() -> None:
    methods = {"all": {"name": "local", "steps": 1, "run": {"cohort": 5}}, "some": Local(steps=1)}
    found = dc.compare(task(), DATA, methods, cohort=2, **HOW)
    assert [run.config["cohort"] for run in found] == [5, 2]


def test_seeds_that_change_nothing_are_named() -> None:
    """Full batches of everyone, from one model on one data set: nothing is drawn by the seed."""
    methods = {"a": Local(steps=1, batch=None), "b": FedAvg(steps=2, batch=64)}  # 64 are more than anybody has
    same = dc.compare(task(), DATA, methods, seeds=2, **HOW)
    assert "a: its 2 seeds gave the same result up to rounding, and count as one" in same._repr_html_()
    assert same.verdict().endswith("gave the same results up to rounding, and say nothing about chance.")
    assert same.differences().row(0, named=True)["low"] is None and not same.differences()["sure"].any()
    drawn = dc.compare(task(), DATA, METHODS, seeds=2, **HOW)
    assert "gave the same result" not in drawn._repr_html_()
    assert isinstance(drawn.table(), pl.DataFrame)


def test_a_row_of_fewer_seeds_is_marked() -> None:
    every = list(dc.compare(task(), DATA, METHODS, seeds=2, **HOW))
    fewer = repr(dc.Comparison(every[:-1]))
    assert fewer.count(", 1 of 2 seeds") == 1 and "1 of 2 seeds" not in repr(dc.Comparison(every))


def test_runs_on_several_data_are_named_by_them_and_compared_within_each() -> None:
    runs = []
    for clients in (4, 6):
        data = dc.datasets.synthetic(clients=clients, samples=20)
        task = dc.Task(dc.models.linear(data))
        made = dc.compare(task, data, {"Alone": dc.methods.Local(steps=1), "Avg": "fedavg"}, rounds=1, mode="vmap")
        runs += list(made)
    both = dc.Comparison(runs)
    on = [f", on synthetic (clients {clients})" for clients in (4, 6)]
    assert list(both.runs) == [f"{method}{where}" for where in on for method in ("Alone", "Avg")]
    assert all(len(there) == 1 for there in both.runs.values()), "other data are no seeds"
    assert both.table()["method"].to_list() == list(both.runs)
    pairs = {(line["method"], line["against"]) for line in both.differences().to_dicts()}
    assert len(pairs) == 2 and all(a.partition(", on ")[2] == b.partition(", on ")[2] for a, b in pairs)
    assert "On synthetic (clients 4): " in both.verdict() and "On synthetic (clients 6): " in both.verdict()
    assert "on synthetic (clients 4) and synthetic (clients 6)" in repr(both)
