"""Seeds and draws: none is dropped, none stands under another's name, and what they say is said."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from descant.engine import Collapse
from descant.errors import SettingError
from descant.experiment import Run
from descant.experiment.unlike import unlike
from descant.report import Report
from descant.report.gather import Entry, Experiment, find, gather
from descant.report.tables import notices, overview, summary_rows, worst_served
from descant.report.training import measures
from descant.report.verdict import by_seed, paired, ranked, verdict


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    return [Run.load(path) for path in find([folder])]


def drawn(run: Run, data_seed: int, seed: int | None = None) -> Run:
    """The run as if its data had been drawn with another seed."""
    config = copy.deepcopy(run.config)
    config["data"]["settings"]["seed"] = data_seed
    config["seed"] = config["seed"] if seed is None else seed
    return Run(config, copy.deepcopy(run.history))


def test_runs_that_differ_in_the_datas_seed_alone_are_kept_and_told_apart(runs: list[Run]) -> None:
    [experiment] = gather([drawn(runs[0], 1), drawn(runs[0], 2)])
    [entry] = experiment.entries
    assert len(entry.runs) == 2 and entry.seeds == ["0 (data 1)", "0 (data 2)"]
    other = gather([drawn(runs[0], 1), drawn(runs[0], 2), drawn(runs[2], 1)])[0]
    assert any("0 (data 1), 0 (data 2)" in said for said in notices(other, summary_rows(other)))


def test_clients_are_named_as_in_the_run_whose_values_they_are(runs: list[Run]) -> None:
    first, second = drawn(runs[0], 1, seed=1), drawn(runs[0], 2, seed=2)
    first.history.collapse = Collapse(round=3, why="a number was not finite")
    for columns in first.history.evaluated["personal"].values():  # no validation data: the last round is reported
        columns.pop("valid_accuracy", None)
    for columns in second.history.evaluated["personal"].values():
        columns.pop("valid_accuracy", None)
    names = [f"second {name}" for name in second.history.federation.names]
    second.history.federation = replace(second.history.federation, names=names)
    [experiment] = gather([first, second])
    assert experiment.rule == "last"
    table = worst_served(experiment)
    assert table.rows and all(row[1].text.startswith("second ") for row in table.rows)
    assert {row[-1].text for row in table.rows} == {"2"}


def test_the_shared_column_is_of_the_round_that_the_row_says(folder: Path, labels: list[str]) -> None:
    report = Report.of(folder)
    [experiment] = report.experiments
    entry = experiment.entries[1]
    for run in entry.runs:  # another round is the shared model's best
        rounds = run.history.evaluated["shared"]
        own = run.summary()["personal.round@chosen_on_valid"]
        other = next(t for t in rounds if t != own)
        rounds[other]["valid_accuracy"] = np.ones_like(rounds[other]["valid_accuracy"])
        rounds[other]["test_accuracy"] = np.full_like(rounds[other]["test_accuracy"], 0.123)
    table = overview(experiment, summary_rows(experiment), "chosen_on_valid")
    row = table.rows[labels.index(entry.label)]
    wanted = [
        run.history.figure("shared", run.summary()["personal.round@chosen_on_valid"], "test_accuracy")["mean"]
        for run in entry.runs
    ]
    assert row[table.columns.index("shared model")].value == pytest.approx(np.mean(wanted)) != pytest.approx(0.123)


def test_a_first_round_past_the_end_is_refused_with_the_last_one(folder: Path) -> None:
    with pytest.raises(SettingError, match=r"first = 5: alone \(seed 0\) was last evaluated in round 4.*4 or less"):
        Report.of(folder, first=5)
    assert Report.of(folder, first=4).experiments


def test_a_paired_difference_is_students() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.9, 0.02, 5), rng.normal(0.88, 0.02, 5)
    found = paired(dict(enumerate_text(a)), dict(enumerate_text(b)))
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found is not None and (found.wins, found.seeds) == (int((a > b).sum()), 5)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-3)
    worse = paired(dict(enumerate_text(a)), dict(enumerate_text(b)), higher_is_better=False)
    assert worse is not None and worse.mean == -found.mean
    assert paired({"0": 1.0}, {"1": 1.0}) is None
    alone = paired({"0": 1.0}, {"0": 0.5})
    assert alone is not None and not alone.sure and "cannot say" in alone.support


def enumerate_text(values: np.ndarray) -> list[tuple[str, float]]:
    return [(str(i), float(value)) for i, value in enumerate(values)]


def test_the_verdict_names_the_best_the_gap_and_what_the_seeds_say(folder: Path) -> None:
    [experiment] = Report.of(folder).experiments
    said, order = verdict(experiment), ranked(experiment)
    best, second = order[0][0].label, order[1][0].label
    assert said.startswith(f"{best} has the highest test accuracy")
    assert second in said and "paired over 2 seeds" in said
    gap = paired(by_seed(order[0][0], experiment), by_seed(order[1][0], experiment))
    assert gap is not None and ("do not tell it apart" in said) == (not gap.sure)
    assert verdict(gather([*experiment.entries[0].runs])[0]) == ""


def test_who_collapsed_is_not_ranked_and_named(folder: Path) -> None:
    [experiment] = Report.of(folder).experiments
    best, second = (entry for entry, *_ in ranked(experiment)[:2])
    best.runs[0].history.collapse = Collapse(round=3, why="a number was not finite")
    [again] = gather([run for entry in experiment.entries for run in entry.runs])
    said = verdict(again)
    assert said.startswith(f"{second.label} has the highest test accuracy")
    assert said.endswith(f" {best.label} collapsed in 1 of 2 seeds, and is not ranked.")
    assert best.label not in [entry.label for entry, *_ in ranked(again)]
    for run in (run for entry in experiment.entries for run in entry.runs):
        run.history.collapse = Collapse(round=1, why="a number was not finite")
    [none] = gather([*best.runs, *second.runs])
    assert verdict(none).startswith("Every method collapsed: ") and ranked(none) == []
    second.runs[0].history.collapse = second.runs[1].history.collapse = None
    [one] = gather([*best.runs, *second.runs])
    assert verdict(one) == f"{best.label} collapsed in 2 of 2 seeds, and is not ranked."


def test_rounds_that_were_not_evaluated_equally_often_are_said(folder: Path) -> None:
    [experiment] = Report.of(folder).experiments
    first, second, *_ = experiment.entries
    assert not any("equally often" in said for said in notices(experiment, summary_rows(experiment)))
    for run in first.runs:
        for rounds in run.history.evaluated.values():
            for early in sorted(rounds)[:-1]:
                del rounds[early]
    [said] = unlike({first.label: first.runs, second.label: second.runs})
    assert said.startswith(
        "Not evaluated equally often, so that the round to report is chosen among more or fewer: 1 ("
    )
    for run in second.runs:
        run.config["rounds"] += 1  # then it is no wonder
    assert [told.split(":")[0] for told in unlike({"a": first.runs, "b": second.runs})] == ["Not the same rounds"]


def test_two_that_are_equal_are_said_to_be(folder: Path) -> None:
    [experiment] = Report.of(folder).experiments
    [copied] = Report.of(folder).experiments
    for run in copied.entries[0].runs:
        run.config["label"] = "the same again"
    said = verdict(gather([*experiment.entries[0].runs, *copied.entries[0].runs])[0])
    assert "have the same mean test accuracy" in said and "above" not in said


def test_behind_two_that_are_equal_the_next_is_named(folder: Path) -> None:
    [experiment] = Report.of(folder).experiments
    best, second = (entry.label for entry, *_ in ranked(experiment)[:2])
    [copied] = Report.of(folder).experiments
    twins = next(entry for entry in copied.entries if entry.label == best).runs
    for run in twins:
        run.config["label"] = "the same again"
    every = [run for entry in experiment.entries for run in entry.runs]
    said = verdict(gather([*every, *twins])[0])
    assert "have the same mean test accuracy" in said
    assert f" above {second}, which comes next (95 % interval" in said


Figures = dict[str, dict[int, float]]  # by label, and by seed


@pytest.fixture
def experiment_of(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> Callable[[Figures], Experiment]:
    """An experiment with the test accuracies that are given."""

    def made(figures: Figures) -> Experiment:
        found, values = [], {}
        for label, own in figures.items():
            for seed, figure in own.items():
                found.append(run := Run(runs[0].config | {"label": label, "seed": seed}, runs[0].history))
                values[id(run)] = figure
        [experiment] = gather(found)
        name = f"personal.test_accuracy.mean@{experiment.rule}"
        monkeypatch.setattr(Run, "summary", lambda self, first=0: {name: values[id(self)]})
        monkeypatch.setattr(Entry, "alike", False)  # the histories are the same
        return experiment

    return made


Made = Callable[[Figures], Experiment]


def test_with_other_seeds_the_best_is_who_is_ahead_over_those_that_both_have(experiment_of: Made) -> None:
    a = {0: 0.50, 1: 0.52, 2: 0.54, 3: 0.9}  # an easy seed lifts its mean above that of B
    experiment = experiment_of({"A": a, "B": {0: 0.55, 1: 0.575, 2: 0.6}})
    assert [entry.label for entry, *_ in ranked(experiment)] == ["B", "A"]
    said = verdict(experiment)
    assert said.startswith("B has the highest test accuracy over common seeds: 0.0550 above A (95 % interval 0.04")
    assert "paired over 3 seeds, ahead in 3 of 3" in said and "The seeds support it against every other" in said
    assert "do not have the same seeds" in said and "above B" not in said


def test_a_method_without_a_common_seed_is_named_and_counts_for_nothing(experiment_of: Made) -> None:
    pair: Figures = {"A": {0: 0.5, 1: 0.6}, "B": {0: 0.45, 1: 0.549}}
    said = verdict(experiment_of(pair | {"C": {7: 0.9}}))
    assert said.startswith("A has the highest test accuracy over common seeds: 0.0505 above B")
    assert "The seeds support it against B." in said and "No seed is common to A and C" in said
    said = verdict(experiment_of({"A": {0: 0.5}, "C": {7: 0.9}}))
    assert said == (
        "C has the highest test accuracy over its own seeds, 0.900; no seed is common to it and A, so that they "
        "cannot be paired."
    )


def test_nobody_is_the_best_where_each_is_behind_another(experiment_of: Made) -> None:
    said = verdict(experiment_of({"A": {0: 0.9, 1: 0.1}, "B": {1: 0.5, 2: 0.1}, "C": {2: 0.2, 0: 0.2}}))
    assert said == (
        "A has the highest test accuracy over its own seeds, 0.500, but B is 0.4000 above it over 1 common seed; "
        "over common seeds none is ahead of all others."
    )


def test_all_that_are_level_are_named_up_to_rounding_and_whose_the_interval_is(experiment_of: Made) -> None:
    own = {0: 0.5, 1: 0.4, 2: 0.42}
    level: Figures = {"A": own, "B": dict(own), "C": {seed: value + 1e-16 for seed, value in own.items()}}
    assert level["C"] != own, "they differ by rounding"
    said = verdict(experiment_of(level | {"D": {0: 0.2, 1: 0.36, 2: 0.4}}))
    first, second = said.split(". ", 1)
    assert set(
        first.removesuffix(" have the same mean test accuracy, 0.440").replace(" and ", ", ").split(", ")
    ) == {*"ABC"}
    assert "is 0.1200 above D, which comes next (95 % interval -0.2" in second and "ahead in 3 of 3)" in second
    assert second.endswith("These seeds do not tell them apart from D.")
    said = verdict(experiment_of(level | {"D": {0: 0.3, 1: 0.201, 2: 0.22}}))
    assert said.endswith("The seeds support this against every other method.")
    assert verdict(experiment_of(level)).endswith("have the same mean test accuracy, 0.440.")


def test_a_small_difference_is_no_zero(experiment_of: Made) -> None:
    said = verdict(experiment_of({"A": {0: 0.50002, 1: 0.40003}, "B": {0: 0.5, 1: 0.4}}))
    assert "A has the highest test accuracy, 0.450: 2e-05 above B" in said


def test_what_is_noted_of_the_data_of_any_seed_is_on_the_page(runs: list[Run], tmp_path: Path) -> None:
    """And it is said what does not hold for every run."""

    def noted(run: Run, data_seed: int, *notes: str) -> Run:
        found = drawn(run, data_seed)
        found.config["data"]["notes"] = list(notes)
        return found

    few = [f"client {k} was left out" for k in range(5)]
    report = Report([noted(runs[0], 1, "one is tiny", few[0]), noted(runs[1], 2, *few[1:], "one is tiny")])
    told = f"one is tiny. Of some runs, not of all: {'. '.join(few)}.</p>"
    assert told in report.html()
    for path in report.save(tmp_path, "md"):
        assert told.removesuffix("</p>") in path.read_text()
    alike = Report([noted(runs[0], 1, "one is tiny"), noted(runs[1], 2, "one is tiny")])
    assert "one is tiny.</p>" in alike.html() and "Of some runs" not in alike.html()


def test_a_run_whose_task_nobody_wrote_down_is_drawn_by_its_metric_and_its_loss(runs: list[Run]) -> None:
    without = Run({name: value for name, value in runs[0].config.items() if name != "task"}, runs[0].history)
    assert measures(Experiment("mine", (Entry("alone", (without,)),), "mine")) == ["accuracy", "loss"]
