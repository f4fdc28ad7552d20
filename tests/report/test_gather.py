"""Which runs stand side by side."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from descant.errors import SettingError
from descant.experiment import Run
from descant.report import Report
from descant.report.gather import differing, find, gather
from descant.report.series import chosen, per_client


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    return [Run.load(path) for path in find([folder])]


def changed(run: Run, **changes: object) -> Run:
    """The run as if it had followed from other settings; a dotted name is 'section__field'."""
    config = copy.deepcopy(run.config)
    for name, value in changes.items():
        *sections, field = name.split("__")
        inner = config
        for section in sections:
            inner = inner[section]
        inner[field] = value
    return Run(config, run.history)


def test_runs_of_a_label_are_its_seeds_and_labels_keep_their_order(runs: list[Run], labels: list[str]) -> None:
    [experiment] = gather(runs)
    assert [entry.label for entry in experiment.entries] == labels
    assert [[run.config["seed"] for run in entry.runs] for entry in experiment.entries] == [[0, 1]] * 3


def test_other_data_or_another_model_is_another_experiment(runs: list[Run]) -> None:
    other_data = changed(runs[0], data__settings={"clients": 12, "samples": 50})
    other_model = changed(runs[0], task__parameters=7)
    experiments = gather([runs[0], other_data, other_model])
    assert len(experiments) == 3
    assert len({experiment.title for experiment in experiments}) == len({e.key for e in experiments}) == 3


def test_another_draw_of_the_data_is_a_seed_of_the_same_experiment(runs: list[Run]) -> None:
    again = changed(runs[0], seed=7, data__settings=runs[0].config["data"]["settings"] | {"seed": 7})
    [experiment] = gather([runs[0], again])
    assert len(experiment.entries) == 1 and len(experiment.entries[0].runs) == 2


def test_one_label_for_several_settings_is_told_apart_by_what_differs(runs: list[Run]) -> None:
    [experiment] = gather([runs[0], changed(runs[0], method__lr=0.5)])
    lr = runs[0].config["method"]["lr"]
    assert [entry.label for entry in experiment.entries] == [f"alone (lr={lr})", "alone (lr=0.5)"]
    assert differing([entry.config for entry in experiment.entries]) == ["method.lr"]


def test_the_same_run_counts_once(runs: list[Run], folder: Path) -> None:
    [experiment] = gather([*runs, *runs])
    assert [len(entry.runs) for entry in experiment.entries] == [2, 2, 2]
    some = next(folder.glob("*/run.json")).parent
    assert len(find([folder, some])) == 6


def test_a_folder_without_runs_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no finished run"):
        Report.of(tmp_path)
    with pytest.raises(SettingError, match="no such folder"):
        Report.of(tmp_path / "nothing")
    with pytest.raises(SettingError, match="at least one run"):
        Report([])


def test_seeds_that_draw_their_own_clients_are_not_averaged_client_by_client(runs: list[Run]) -> None:
    other = changed(runs[0], seed=7, data__settings=runs[0].config["data"]["settings"] | {"seed": 7})
    assert gather([runs[0], runs[1]])[0].entries[0].federation is not None
    assert gather([runs[0], other])[0].entries[0].federation is None


def test_rounds_are_chosen_from_the_first_on_in_charts_as_in_tables(folder: Path) -> None:
    report = Report.of(folder, first=4)
    [experiment] = report.experiments
    wanted = experiment.entries[0].runs[0].summary(4)["personal.test_accuracy.mean@chosen_on_valid"]
    row = chosen(experiment).row(0, named=True)
    assert row["metric"] == pytest.approx(wanted, rel=1e-4)
    values = per_client(experiment.entries[0], experiment, "test_accuracy", "personal")[0]
    assert values.mean() == pytest.approx(wanted)


def test_names_that_look_alike_in_a_link_get_keys_of_their_own(runs: list[Run]) -> None:
    named = [changed(runs[0], data__name=name) for name in ("my data", "my-data", "数据")]
    assert len({experiment.key for experiment in gather(named)}) == 3
