"""Logs for other tools: what they are told, by modules that take the place of theirs, and TensorBoard itself."""

from __future__ import annotations

import sys
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import descant as dc
from descant.callbacks import MLflow, TensorBoard, WandB
from descant.errors import SettingError

DATA = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)


def simulate(callback: Any, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    how: dict[str, Any] = {"rounds": 3, "mode": "vmap", "evaluate": 2, "label": "mine/a", "seed": 7} | settings
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, how.pop("method", "ditto"), callbacks=callback, **how)


class Recorder:
    """Takes any call, and writes it down by name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.calls.append((name, given, named))

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(given, named) for called, given, named in self.calls if called == name]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A recorder in the place of each tool's module."""
    recorder = Recorder()
    wandb, mlflow, tensorboard = ModuleType("wandb"), ModuleType("mlflow"), ModuleType("torch.utils.tensorboard")

    def init(**given: Any) -> Recorder:
        recorder.calls.append(("init", (), given))
        return recorder

    recorder.summary = Recorder()  # type: ignore[attr-defined]
    wandb.init = init  # type: ignore[attr-defined]
    tensorboard.SummaryWriter = lambda where: init(where=where)  # type: ignore[attr-defined]
    for name in ("set_tracking_uri", "set_experiment", "start_run", "log_params", "log_metrics", "end_run"):
        setattr(mlflow, name, getattr(recorder, name))
    mlflow.active_run = lambda: None  # type: ignore[attr-defined]
    for module in (wandb, mlflow, tensorboard):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return recorder


def expected(run: dc.Run, round: int) -> dict[str, float]:
    """Means and worst tenths that were evaluated after a round."""
    return {
        f"{model}.{column}.{statistic}": run.history.figure(model, round, column)[statistic]
        for model, rounds in run.history.evaluated.items()
        for column in rounds[round]
        for statistic in ("mean", "worst_10")
    }


def test_wandb_gets_settings_figures_by_round_and_the_summary(tool: Recorder) -> None:
    run = simulate(WandB(project="fed", options={"mode": "offline"}))
    [(_, begun)] = tool.named("init")
    assert (begun["project"], begun["name"], begun["mode"]) == ("fed", "mine/a, seed 7", "offline")
    assert begun["config"]["method.solver.name"] == "fedavg" and begun["config"]["rounds"] == 3
    logged = [(named["step"], given[0]) for given, named in tool.named("log")]
    assert [step for step, _ in logged] == [0, 1, 2, 2, 3, 3]
    assert logged[0][1] == expected(run, 0) and logged[-1][1] == expected(run, 3)
    assert logged[1][1]["round.bytes_up"] == run.history.rounds[0]["bytes_up"] > 0
    [((summary,), _)] = tool.summary.named("update")
    assert summary == {name: value for name, value in run.summary().items() if value is not None}
    assert tool.named("finish") == [((), {"exit_code": 0})]


def test_mlflow_gets_parameters_figures_by_round_and_the_end(tool: Recorder) -> None:
    run = simulate(MLflow(experiment="fed", uri="sqlite:///x.db", statistics=("mean",)))
    assert tool.named("set_tracking_uri") == [(("sqlite:///x.db",), {})]
    assert tool.named("set_experiment") == [(("fed",), {})]
    assert tool.named("start_run") == [((), {"run_name": "mine/a, seed 7", "nested": False})]
    told = {name: value for given, _ in tool.named("log_params") for name, value in given[0].items()}
    assert told["method.name"] == "ditto" and told["seed"] == "7" and max(map(len, told.values())) <= 500
    logged = [(named["step"], given[0]) for given, named in tool.named("log_metrics")]
    assert [step for step, _ in logged] == [0, 1, 2, 2, 3, 3]
    means = {name: value for name, value in expected(run, 3).items() if name.endswith(".mean")}
    assert logged[-1][1] == means
    assert tool.named("end_run") == [((), {"status": "FINISHED"})]


def test_tensorboard_gets_a_scalar_a_figure_and_round(tool: Recorder, tmp_path: Path) -> None:
    run = simulate(TensorBoard(folder=tmp_path))
    assert tool.named("init") == [((), {"where": str(tmp_path / "mine-a, seed 7")})]
    points = {(name, step): value for (name, value, step), _ in tool.named("add_scalar")}
    for name, value in expected(run, 2).items():
        assert points[name.replace(".", "/", 1), 2] == value
    assert points["round/bytes_up", 3] == run.history.rounds[2]["bytes_up"]
    [((tag, text, _), _)] = tool.named("add_text")
    assert tag == "settings" and "| method.name | ditto |" in text
    assert len(tool.named("close")) == 1


@pytest.mark.parametrize("callback", [WandB(), MLflow(), TensorBoard()], ids=lambda log: type(log).__name__)
def test_an_error_and_a_collapse_close_the_log_as_failed(tool: Recorder, callback: Any) -> None:
    def stop(record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(callback, progress=stop)
    diverges = dc.methods.Local(lr=1e38, steps=3)
    assert simulate(callback, method=diverges, rounds=9).collapse is not None
    ends = [*tool.named("finish"), *tool.named("end_run")]
    failed = [{"exit_code": 1}, {"status": "FAILED"}]
    assert len(ends) == (0 if isinstance(callback, TensorBoard) else 2) and all(end in failed for _, end in ends)
    assert len(tool.named("close")) == (2 if isinstance(callback, TensorBoard) else 0)
    for given, _ in [*tool.named("log"), *tool.named("log_metrics")]:
        assert all(isfinite(value) for value in given[0].values())


@pytest.mark.parametrize(
    ("callback", "extra"), [(WandB(), "wandb"), (MLflow(), "mlflow"), (TensorBoard(), "tensorboard")]
)
def test_where_a_tool_is_not_installed_it_is_said_how_to_get_it(
    callback: Any, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, extra, None)  # as if it were not there
    with pytest.raises(SettingError, match=rf"{extra} is not installed.*pip install 'descant\[{extra}\]'"):
        simulate(callback)


def test_what_is_not_finite_or_not_asked_for_is_left_out(tool: Recorder) -> None:
    log = WandB(statistics=("mean", "std"))
    log.on_start({"label": "mine", "seed": 0})
    figures = {"a.test_loss.mean": float("inf"), "a.test_loss.std": 0.5, "a.test_loss.worst_10": 1.0}
    log.on_evaluated(1, figures | {"b.test_loss.mean": float("nan"), "b.test_loss.std": 0.0})
    assert tool.named("log") == [(({"a.test_loss.std": 0.5, "b.test_loss.std": 0.0},), {"step": 1})]


@pytest.mark.parametrize("log", [WandB, MLflow, TensorBoard])
def test_statistics_that_there_are_not_are_refused(log: Any) -> None:
    with pytest.raises(SettingError, match=rf"{log.__name__}\.statistics = \('median',\)"):
        log(statistics=("median",))


def test_what_tensorboard_wrote_can_be_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = simulate(TensorBoard(folder=tmp_path))
    read = EventAccumulator(str(tmp_path / "mine-a, seed 7"))
    read.Reload()
    points = {event.step: event.value for event in read.Scalars("personal/test_accuracy.mean")}
    assert points == pytest.approx({t: expected(run, t)["personal.test_accuracy.mean"] for t in (0, 2, 3)})
