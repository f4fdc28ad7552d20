"""What a run reports, and what it leaves on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

import descant as dc
from descant.errors import NoSharedModelError, SettingError


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    rng = np.random.default_rng(0)
    sizes = [(n, np.arange(n) % 3) for n in (12, 20, 31, 15)]
    return dc.FederatedData.from_arrays([(rng.normal(size=(n, 4)).astype("float32"), y) for n, y in sizes])


@pytest.fixture(scope="module")
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(torch.nn.Linear(4, 3))


def ditto() -> dc.methods.Ditto:
    return dc.methods.Ditto(lam=0.5, steps=3, batch=5, solver=dc.methods.FedAvg(steps=2, batch=5))


def test_a_summary_names_the_model_the_part_the_statistic_and_the_round(
    task: dc.Task, data: dc.FederatedData
) -> None:
    run = dc.simulate(task, data, ditto(), rounds=6, cohort=2)
    last = run.clients.filter(pl.col("round") == 6, pl.col("model") == "shared")
    sizes = data.test.sizes.numpy()
    summary = run.summary()
    assert summary["shared.test_accuracy.mean@last"] == pytest.approx(last["test_accuracy"].mean())
    weighted = np.average(last["test_accuracy"].to_numpy(), weights=sizes)
    assert summary["shared.test_accuracy.weighted_mean@last"] == pytest.approx(weighted)
    assert summary["shared.train_loss.variance@last"] == pytest.approx(last["train_loss"].var(ddof=0))


def test_the_round_is_chosen_on_validation_data_and_the_best_on_test_is_named_so(
    task: dc.Task, data: dc.FederatedData
) -> None:
    run = dc.simulate(task, data, ditto(), rounds=8, evaluate=2)
    mean = run.clients.filter(pl.col("model") == "personal").group_by("round").agg(pl.col("^.*accuracy$").mean())
    for part, rule in (("valid", "chosen_on_valid"), ("test", "best_on_test")):
        best = mean.sort(f"{part}_accuracy", "round", descending=[True, False])["round"][0]
        assert run.summary()[f"personal.round@{rule}"] == best
        late = mean.filter(pl.col("round") >= 4).sort(f"{part}_accuracy", "round", descending=[True, False])
        assert run.summary(first=4)[f"personal.round@{rule}"] == late["round"][0]
    assert set(mean["round"]) == {0, 2, 4, 6, 8}


def test_without_validation_data_no_round_is_chosen_on_it(task: dc.Task) -> None:
    x, y = np.eye(4, dtype="float32"), np.array([0, 1, 2, 0])
    part = {"train": (x, y), "test": (x, y)}
    run = dc.simulate(task, dc.FederatedData.from_arrays([part, part]), dc.methods.Local(steps=1), rounds=1)
    assert not [name for name in run.summary() if name.endswith("chosen_on_valid")]


def test_the_tables_agree_with_the_totals(task: dc.Task, data: dc.FederatedData) -> None:
    run = dc.simulate(task, data, ditto(), rounds=5, cohort=2)
    assert run.rounds["round"].to_list() == [1, 2, 3, 4, 5]
    end = run.clients.filter(pl.col("round") == 5, pl.col("model") == "personal")
    for kind in ("bytes_up", "bytes_down", "gradients", "examples"):
        assert end[kind].sum() == run.rounds[kind].sum()
    assert run.summary()["bytes_up"] == 5 * 2 * (15 * 4 + 4)  # the update and the number of examples
    assert run.summary()["gradients_per_client"] == 5 * 2 * (3 + 2) / 4


def test_a_saved_run_is_read_back_as_it_was(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    run = dc.simulate(task, data, ditto(), rounds=3, cohort=2, out=tmp_path / "run")
    loaded = dc.load(tmp_path / "run")
    assert loaded.summary() == run.summary()
    assert loaded.rounds.equals(run.rounds) and loaded.clients.equals(run.clients)
    assert loaded.config["method"]["solver"]["name"] == "fedavg" and loaded.config["seed"] == 0
    assert {"descant", "torch", "numpy", "python"} <= set(loaded.config["versions"])
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["bytes_up"] == run.summary()["bytes_up"]
    state = load_file(tmp_path / "run" / "state.safetensors")
    personal = torch.nn.utils.parameters_to_vector(run.personal(1, round="last").parameters())
    assert torch.equal(state["clients.v"][1], personal)
    assert not list((tmp_path / "run").glob(".*.tmp")), "no temporary file is left"
    again = torch.nn.utils.parameters_to_vector(loaded.personal(1, round="last", model=task.model).parameters())
    assert torch.equal(again, personal)


def test_a_collapsed_run_is_saved_as_a_result(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    task = dc.Task(torch.nn.Linear(4, 1), "squared_error")
    targets = [
        (data.train.client(k)[0].numpy(), np.ones((len(data.train.client(k)[0]), 1), "float32")) for k in range(4)
    ]
    run = dc.simulate(
        task,
        dc.FederatedData.from_arrays(targets),
        dc.methods.FedAvg(lr=1e8, steps=20),
        rounds=9,
        out=tmp_path / "run",
    )
    assert run.collapse is not None and run.summary()["collapsed_round"] == run.collapse.round
    assert math.isnan(run.summary()["personal.test_loss.mean@last"])
    loaded = dc.load(tmp_path / "run")
    assert loaded.collapse == run.collapse
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["personal.test_loss.mean@last"] is None


def test_a_finished_run_is_not_overwritten_unasked(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    dc.simulate(task, data, dc.methods.Local(steps=1), rounds=1, out=tmp_path)
    with pytest.raises(SettingError, match="already holds a run"):
        dc.simulate(task, data, dc.methods.Local(steps=1), rounds=2, out=tmp_path)
    assert dc.simulate(task, data, dc.methods.Local(steps=1), rounds=2, out=tmp_path, overwrite=True).summary()[
        "rounds"
    ] == len(dc.load(tmp_path).rounds)


def test_a_folder_that_cannot_be_made_is_refused_before_training(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="out = "):
        dc.simulate(task, data, dc.methods.Local(steps=1), rounds=10**9, out=tmp_path / "file" / "run")


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no finished run"):
        dc.load(tmp_path)


def test_models_come_out_as_modules_that_predict_what_was_measured(task: dc.Task, data: dc.FederatedData) -> None:
    run = dc.simulate(task, data, ditto(), rounds=4)
    for model, name in ((run.personal(2, round="last"), "personal"), (run.shared(round="last"), "shared")):
        inputs, targets = data.test.client(2)
        accuracy = (model(inputs).argmax(1) == targets).float().mean().item()
        row = run.clients.filter(pl.col("round") == 4, pl.col("model") == name, pl.col("client") == 2)
        assert row["test_accuracy"].item() == pytest.approx(accuracy)
    with pytest.raises(SettingError, match="client = 4"):
        run.personal(4, round="last")
    with pytest.raises(NoSharedModelError, match="Local has no shared model"):
        dc.simulate(task, data, dc.methods.Local(steps=1), rounds=1).shared()


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"rounds": 0}, "rounds"),
        ({"cohort": 0}, "cohort"),
        ({"cohort": 5}, "cohort"),
        ({"cohort": 1.5}, "cohort"),
        ({"sampling": "fair"}, "sampling"),
        ({"trainers": "nobody"}, "trainers"),
        ({"stragglers": 2.0}, "stragglers"),
        ({"nonfinite": "ignore"}, "nonfinite"),
        ({"mode": "fast"}, "mode"),
        ({"chunk": 0}, "chunk"),
        ({"evaluate": 0}, "every"),
    ],
)
def test_a_bad_setting_is_named(task: dc.Task, data: dc.FederatedData, settings: dict, field: str) -> None:
    with pytest.raises(SettingError, match=field):
        dc.simulate(task, data, dc.methods.Local(steps=1), **{"rounds": 1} | settings)


def test_a_mistake_while_overwriting_leaves_the_old_run_alone(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path
) -> None:
    dc.simulate(task, data, ditto(), rounds=1, out=tmp_path, store="disk")
    before = sorted(file.name for file in tmp_path.rglob("*"))
    with pytest.raises(SettingError, match="mode"):
        dc.simulate(task, data, ditto(), rounds=1, out=tmp_path, overwrite=True, mode="vmpa")  # type: ignore[arg-type]
    assert sorted(file.name for file in tmp_path.rglob("*") if file.name != ".lock") == before
    assert dc.load(tmp_path).summary()["rounds"] == 1


def test_the_shared_model_alone_can_be_evaluated(task: dc.Task, data: dc.FederatedData, tmp_path: Path) -> None:
    shared = dc.Evaluation(models=("shared",))
    for method in (dc.methods.FedAvg(steps=1), dc.methods.Local(steps=1)):
        run = dc.simulate(task, data, method, rounds=1, evaluate=shared, out=tmp_path / method.name)
        assert dc.load(tmp_path / method.name).summary() == run.summary()
        assert ("shared.test_loss.mean@last" in run.summary()) == method.has_shared


def test_gradients_are_counted_up_to_the_last_round(task: dc.Task, data: dc.FederatedData) -> None:
    run = dc.simulate(task, data, dc.methods.Local(steps=2), rounds=3, evaluate=2)
    assert run.summary()["gradients_per_client"] == 6


def test_a_metric_may_not_take_the_place_of_the_loss() -> None:
    with pytest.raises(SettingError, match=r"Metric\.name"):
        dc.Metric("loss", lambda outputs, targets: targets, higher_is_better=False)


def test_data_in_the_place_of_the_task_is_refused_in_a_line(task: dc.Task, data: dc.FederatedData) -> None:
    with pytest.raises(
        SettingError, match=r"^task is a FederatedData: it must be a task, descant.Task\(module\), or"
    ):
        dc.simulate(data, task, "fedavg", rounds=1)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_a_device_that_is_not_there_is_refused(task: dc.Task, data: dc.FederatedData) -> None:
    with pytest.raises(SettingError, match="device = 'cuda': there is no such device here"):
        dc.simulate(task, data, "fedavg", rounds=1, device="cuda")
