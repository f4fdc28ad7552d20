"""Which runs stand side by side."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from descant import Comparison, FederatedData, simulate
from descant.errors import LeftOutWarning, SettingError
from descant.experiment import Run
from descant.experiment.attackgrid import attack_grid
from descant.experiment.declaration import Settings, declared
from descant.experiment.namesakes import differing
from descant.report import Report
from descant.report.gather import find, gather
from descant.report.making import report
from descant.report.series import chosen, per_client
from descant.report.tables import notices, summary_rows
from tests.interrupted import interrupt

DATA = FederatedData.from_arrays([(torch.eye(3).repeat(4, 1), torch.arange(12) % 2) for _ in range(3)])


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


def test_how_runs_were_carried_out_does_not_tell_the_seeds_of_a_label_apart(runs: list[Run]) -> None:
    """Such as a setting that there was not yet when one of them was made."""
    told = {name for name, setting in declared(Settings).items() if setting.role == "how"}
    how = sorted(told & runs[0].config.keys())
    assert "deterministic" in how
    others = [changed(run, **dict.fromkeys(how)) if run.config["seed"] else run for run in runs]
    [experiment] = gather(others)
    assert [len(entry.runs) for entry in experiment.entries] == [2, 2, 2]


def test_other_data_or_another_model_is_another_experiment(runs: list[Run]) -> None:
    other_data = changed(runs[0], data__settings={"clients": 12, "samples": 50})
    other_model = changed(runs[0], task__parameters=7)
    experiments = gather([runs[0], other_data, other_model])
    assert len(experiments) == 3
    assert len({experiment.title for experiment in experiments}) == len({e.key for e in experiments}) == 3


def test_data_of_the_same_name_are_told_apart_by_their_settings(runs: list[Run]) -> None:
    settings = [{"samples": 40, "alpha": 0.5}, {"samples": 50, "alpha": 0.5}]
    settings += [{"samples": 40, "partition": {"name": "dirichlet", "alpha": 0.1}}]
    named = [changed(runs[0], data__settings=each) for each in settings]
    assert [(experiment.title, experiment.key) for experiment in gather(named)] == [
        ("synthetic (samples 40, alpha 0.5)", "synthetic-samples-40-alpha-0-5"),
        ("synthetic (samples 50, alpha 0.5)", "synthetic-samples-50-alpha-0-5"),
        (
            "synthetic (samples 40, partition dirichlet, partition.alpha 0.1)",
            "synthetic-samples-40-partition-dirichlet-partition-alpha-0-1",
        ),
    ]
    models = [changed(runs[0], task__parameters=7), changed(runs[0], task__parameters=9)]
    assert [each.title for each in gather(models)] == ["synthetic (parameters 7)", "synthetic (parameters 9)"]
    modules = [changed(runs[0], task__model="Net()"), changed(runs[0], task__model="Other()")]
    assert [each.title for each in gather(modules)] == ["synthetic (1)", "synthetic (2)"]
    folders = [changed(runs[0], data__settings={"folder": f"{'a/' * 90}{i}"}) for i in range(2)]
    assert all(len(each.key) < 90 for each in gather(folders)) and len({each.key for each in gather(folders)}) == 2


def test_files_say_which_data_they_are_of(runs: list[Run], tmp_path: Path) -> None:
    named = [changed(runs[0], data__settings={"samples": samples}) for samples in (40, 50)]
    written = Report(named).save(tmp_path, "csv")
    assert [path.name for path in written] == ["synthetic-samples-40.csv", "synthetic-samples-50.csv"]


def test_another_draw_of_the_data_is_a_seed_of_the_same_experiment(runs: list[Run]) -> None:
    again = changed(runs[0], seed=7, data__settings=runs[0].config["data"]["settings"] | {"seed": 7})
    [experiment] = gather([runs[0], again])
    assert len(experiment.entries) == 1 and len(experiment.entries[0].runs) == 2


def test_one_label_for_several_settings_is_told_apart_by_what_differs(runs: list[Run]) -> None:
    [experiment] = gather([runs[0], changed(runs[0], method__lr=0.5)])
    lr = runs[0].config["method"]["lr"]
    assert [entry.label for entry in experiment.entries] == [f"alone (lr={lr})", "alone (lr=0.5)"]
    assert differing([entry.config for entry in experiment.entries]) == ["method.lr"]


def test_of_two_runs_that_say_the_same_of_themselves_the_later_one_counts(runs: list[Run]) -> None:
    """The code of a method by an import path may be another one since the first."""
    [experiment] = gather([runs[0], again := changed(runs[0], data__notes=["more is noted by now"])])
    assert experiment.entries[0].runs == (again,)


def test_the_same_run_counts_once(runs: list[Run], folder: Path) -> None:
    [experiment] = gather([*runs, *runs])
    assert [len(entry.runs) for entry in experiment.entries] == [2, 2, 2]
    some = next(folder.glob("*/run.json")).parent
    assert len(find([folder, some])) == 6


def test_unfinished_runs_beside_finished_ones_are_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    some = next(folder.glob("*/run.json")).parent
    shutil.copytree(some, tmp_path / "done")
    for name in ("a", "b"):  # a run that was begun, with what it has when it is
        with pytest.raises(KeyboardInterrupt):
            simulate(nn.Linear(3, 2), DATA, "local", rounds=3, progress=interrupt(1), out=tmp_path / name)
    with pytest.warns(LeftOutWarning, match=r"a and 1 more: unfinished, and left out; .*descant.resume"):
        assert find([tmp_path]) == [(tmp_path / "done").resolve()]
    shutil.rmtree(tmp_path / "b")
    with pytest.warns(LeftOutWarning, match=r"a: unfinished, and left out; .*descant.resume"):
        assert len(Report.of(tmp_path).experiments) == 1
    assert find([tmp_path / "done"]) == [(tmp_path / "done").resolve()]  # of a run itself there is nothing to say
    shutil.rmtree(tmp_path / "done")
    with pytest.raises(SettingError, match="a is unfinished: go on with it first"):
        find([tmp_path])


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


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `descant robustness` left: two methods, clean and with two of five clients malicious."""
    folder = tmp_path_factory.mktemp("attacked")
    values = {
        "data": {"name": "synthetic", "clients": 5, "samples": 20, "dim": 3, "classes": 3},
        "methods": {"together": {"name": "fedavg", "steps": 1}, "alone": {"name": "local", "steps": 1}},
        "attacks": ["sign-flip"],
        "fractions": [0, 0.4],
        "rounds": 1,
        "mode": "vmap",
    }
    list(attack_grid(values, folder).grid.run())
    (folder / "robustness.html").write_text("the page")
    return folder


def test_runs_with_other_benign_clients_are_told_apart(attacked: Path) -> None:
    made = Report.of(attacked)
    assert [experiment.title for experiment in made.experiments] == [
        "synthetic, nobody attacks",
        "synthetic, 2 of 5 clients attack",
    ]
    for experiment in made.experiments:
        benign = {tuple(run.history.federation.members("benign")) for e in experiment.entries for run in e.runs}
        assert len(experiment.entries) == 2 and len(benign) == 1
        (note, *_) = notices(experiment, summary_rows(experiment))
        assert "other malicious clients" in note and str(attacked / "robustness.html") in note
    assert made.notes == list(made.experiments[0].notes)
    assert report(attacked).notes == report(iter([attacked])).notes == made.notes


def test_nothing_is_said_where_benign_clients_are_the_same(attacked: Path, folder: Path) -> None:
    clean = [run for run in map(Run.load, find([attacked])) if not run.config["malicious"]]
    assert Report(clean).notes == Report.of(folder).notes == []
    named = [changed(run, malicious=malicious) for run in clean for malicious in ([0], [1])]
    titles = [experiment.title for experiment in gather(named)]
    assert titles == ["synthetic, the clients 0 attack", "synthetic, the clients 1 attack"]


def test_a_first_round_before_the_beginning_is_refused(folder: Path) -> None:
    with pytest.raises(SettingError, match="first = -3: rounds are counted from 0"):
        Report.of(folder, first=-3)


def held(run: Run, fingerprint: str, **changes: object) -> Run:
    """The run as if it had been on data that held something else."""
    return changed(run, data__fingerprint=fingerprint, **changes)


def test_data_that_hold_something_else_by_now_are_other_data(runs: list[Run]) -> None:
    """One seed was run again since then, or both, or a seed that had not been run before."""
    old = [held(runs[0], "old", seed=seed) for seed in (0, 1)]
    new = [held(runs[0], "new", seed=seed) for seed in (0, 1, 2)]
    for later in (new[:1], new[:2], new):
        first, second = gather([*old, *later])
        assert [run.config["seed"] for run in first.entries[0].runs] == [0, 1]
        assert list(second.entries[0].runs) == later
        assert (first.title, second.title) == ("synthetic (1)", "synthetic (2)")
        assert all("other examples" in " ".join(each.notes) for each in (first, second))
    both = Comparison([*old, *new])
    assert [len(seeds) for seeds in both.runs.values()] == [2, 3]
    assert list(both.runs) == ["alone, on synthetic (1)", "alone, on synthetic (2)"]
    assert both.table()["seeds"].to_list() == [2, 3]


def test_data_that_every_seed_draws_anew_are_no_other_data(runs: list[Run]) -> None:
    """No two seeds have a fingerprint in common there; where the data are the same for every seed, they differ."""
    told = [held(runs[0], f"old {seed}", seed=seed, settings__data__seed="run") for seed in (0, 1, 2)]
    [experiment] = gather(told)
    assert len(experiment.entries[0].runs) == 3 and not experiment.notes
    fixed = [held(runs[0], f"old {seed}", seed=seed) for seed in (0, 1, 2)]
    assert [each.entries[0].runs for each in gather(fixed)] == [(run,) for run in fixed]


def test_a_label_of_other_code_is_another_row(runs: list[Run]) -> None:
    def of_code(fingerprint: str, seed: int) -> Run:
        mine = changed(runs[0], method__name="mine:Mine", seed=seed)
        return Run(mine.config, mine.history, fingerprints={"method": fingerprint})

    mine = [of_code("a", 0), of_code("a", 1), of_code("b", 0)]
    [experiment] = gather(mine)
    assert [len(entry.runs) for entry in experiment.entries] == [2, 1]
    labels = [entry.label for entry in experiment.entries]
    assert len(set(labels)) == 2 and all(label.startswith("alone (code ") for label in labels)
    assert list(Comparison(mine).runs) == labels
    [alone] = gather(mine[:2])
    assert [entry.label for entry in alone.entries] == ["alone"]
    mine[2].config["versions"]["python"] = "3.99.0"
    [unknown] = gather(mine[1:])
    assert len(unknown.entries) == 1, "of another Python it cannot be compared"
    ours = [Run(runs[0].config, runs[0].history, fingerprints={"method": told}) for told in "ab"]
    [experiment] = gather(ours)
    assert len(experiment.entries) == 1, "of descant's own code versions tell"


def test_a_comparison_tells_settings_apart_and_counts_a_run_once(runs: list[Run]) -> None:
    other = changed(runs[0], method__lr=0.5)
    compared = Comparison([runs[0], other, runs[0], other])
    lr = runs[0].config["method"]["lr"]
    assert list(compared.runs) == [f"alone (lr={lr})", "alone (lr=0.5)"]
    assert compared.table()["seeds"].to_list() == [1, 1]


def test_runs_without_a_folder_and_those_with_another_model_stand_for_no_other() -> None:
    """They have the same label, settings and seed, and the data that two were made of are not told."""
    small, large = (
        simulate(nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2)), DATA, "local", rounds=1)
        for width in (2, 5)
    )
    again = simulate(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), DATA, "local", rounds=1)
    compared = Comparison([small, large, again, small])
    assert [len(seeds) for seeds in compared.runs.values()] == [2, 1]
