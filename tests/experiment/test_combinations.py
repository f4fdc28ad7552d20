"""Settings that meet: newcomers, kept models, runs that are stopped, parts within parts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.aggregators import NearestNeighborMixing, TrimmedMean
from descant.callbacks import Callback, EarlyStopping, Stop
from descant.context import Context
from descant.engine import Evaluated, Evaluation, Record
from descant.errors import NoModelError, ResumeError, SettingError, TaskError
from descant.mail import Mail
from descant.methods import AFL, Ditto, FedAvg
from descant.methods.simplex import onto_simplex
from descant.task import Layout
from tests.interrupted import interrupt

LOCAL: dict[str, Any] = {"steps": 2, "batch": 4, "lr": 0.1}
ALL = Evaluation(models=("personal", "shared", "selected"))
DITTO = Ditto(solver=FedAvg(**LOCAL), **LOCAL)


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    clients = {}
    for k in range(6):
        g = torch.Generator().manual_seed(k)
        x = torch.randn(30, 4, generator=g, dtype=torch.float64)
        clients[f"c{k}"] = (x, torch.randint(3, (30,), generator=g))
    return dc.FederatedData.from_arrays(clients, classes=3)


@pytest.fixture(scope="module")
def task() -> dc.Task:
    torch.manual_seed(0)
    return dc.Task(nn.Linear(4, 3).double())


class StopAfter(Callback):
    """Stops a run in round 3: when it was played, or when it was evaluated."""

    def __init__(self, when: str) -> None:
        self.when = when

    def on_round(self, record: Any) -> Stop | None:
        return Stop("enough") if self.when == "round" and record.round == 3 else None

    def on_evaluated(self, round: int, figures: Any) -> Stop | None:
        return Stop("enough") if self.when == "evaluated" and round == 3 else None


@pytest.mark.few(1)
@pytest.mark.parametrize("keep", ["chosen", "last"])
@pytest.mark.parametrize("when", ["round", "evaluated"])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_run_that_is_stopped_keeps_its_last_models(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path, when: str, keep: Any, store: Any
) -> None:
    how: dict[str, Any] = {"mode": "vmap", "evaluate": ALL}
    stopped = dc.simulate(
        task, data, DITTO, rounds=9, keep_models=keep, store=store, out=tmp_path, callbacks=[StopAfter(when)], **how
    )
    assert stopped.stopped is not None
    planned = dc.simulate(task, data, DITTO, rounds=3, **how)
    for run in (stopped, dc.load(tmp_path)):
        for client in ("c0", "c5"):
            for kind in ("personal", "selected"):
                ours = getattr(run, kind)(client, round="last", model=nn.Linear(4, 3).double())
                theirs = getattr(planned, kind)(client, round="last")
                assert torch.equal(ours.weight, theirs.weight), kind


def test_models_of_newcomers_are_refused_and_exports_leave_them_out(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path
) -> None:
    run = dc.simulate(
        task, data, DITTO, rounds=2, newcomers=["c1", "c4"], evaluate=ALL, mode="vmap", out=tmp_path / "run"
    )
    for of in (run, dc.load(tmp_path / "run")):
        with pytest.raises(NoModelError, match="'c4' came later"):
            of.personal("c4", model=nn.Linear(4, 3).double())
        for number in (0, 2, 3, 5):  # everyone keeps the number that it has in the data
            x, y = data.test.client(number)
            table = of.clients.filter((of.clients["model"] == "selected") & (of.clients["round"] == 2))
            for client in (number, f"c{number}"):
                model = of.selected(client, round="last", model=nn.Linear(4, 3).double())
                accuracy = float((model(x).argmax(1) == y).double().mean())
                assert accuracy == pytest.approx(table.filter(table["client"] == number)["test_accuracy"].item())
    written = run.export(tmp_path / "models", programs=False)
    weights = sorted(path.stem for path in written if path.suffix == ".safetensors")
    assert weights == ["0-c0", "2-c2", "3-c3", "5-c5", "shared"]


def test_labels_of_newcomers_are_checked_before_anything_is_trained(task: dc.Task) -> None:
    clients = {f"c{k}": (torch.randn(20, 4).double(), torch.arange(20) % (5 if k == 1 else 3)) for k in range(4)}
    data = dc.FederatedData.from_arrays(clients)
    with pytest.raises(TaskError, match=r"labels reach 4 .client 'c1'"):
        dc.simulate(task, data, FedAvg(), rounds=1, newcomers=["c1"])


def test_what_newcomers_spend_does_not_depend_on_chunks() -> None:
    """With running statistics of their own, both models ask for their first rounds."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
    g = torch.Generator().manual_seed(3)
    rows = [(torch.randn(20, 4, generator=g).double(), torch.randint(3, (20,), generator=g)) for _ in range(6)]
    data = dc.FederatedData.from_arrays(rows, classes=3)
    runs = [
        dc.simulate(
            dc.Task(net, buffers="local"), data, DITTO, rounds=1, newcomers=3, chunk=chunk, evaluate=1, mode="vmap"
        )
        for chunk in (None, 1, 2)
    ]
    for run in runs[1:]:
        assert run.clients["gradients"].equals(runs[0].clients["gradients"])
        assert run.clients["bytes_down"].equals(runs[0].clients["bytes_down"])


SOLVER = """
from dataclasses import dataclass
from typing import ClassVar
from descant.methods import FedAvg
from descant.aggregators import TrimmedMean

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"
    def slope(self, x, grad):
        return FACTOR * super().slope(x, grad)

@dataclass(frozen=True, kw_only=True)
class Trim(TrimmedMean):
    name: ClassVar[str] = "trim"
    def trim(self, leaf):
        return FACTOR * super().trim(leaf)
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module with parts of one's own, as it is written at some time."""

    def make(factor: str) -> ModuleType:
        path = tmp_path / f"parts{factor.replace('.', '_')}.py"
        path.write_text(SOLVER.replace("FACTOR", factor))
        spec = importlib.util.spec_from_file_location("parts_of_mine", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "parts_of_mine", module)
        spec.loader.exec_module(module)
        return module

    return make


@pytest.mark.few(1)
@pytest.mark.parametrize("inner", ["solver", "step"])
def test_a_part_within_a_part_that_was_changed_is_noticed(
    task: dc.Task, data: dc.FederatedData, tmp_path: Path, written: Any, inner: str
) -> None:
    parts = written("1.0")
    method: Any = Ditto(solver=parts.Mine(**LOCAL), **LOCAL) if inner == "solver" else FedAvg(**LOCAL)
    aggregator: Any = "mean" if inner == "solver" else [NearestNeighborMixing(), parts.Trim()]
    with pytest.raises(KeyboardInterrupt):
        how: dict[str, Any] = {"rounds": 4, "commit": 1, "progress": interrupt(2)}
        dc.simulate(task, data, method, aggregator=aggregator, out=tmp_path / "run", **how)
    written("2.0")
    with pytest.raises(ResumeError, match=r"another method|another aggregator"):
        dc.resume(tmp_path / "run", task, data, allow_imports=True)


def test_a_huge_loss_is_a_weight_and_no_crash(task: dc.Task, data: dc.FederatedData) -> None:
    for dtype in (torch.float32, torch.float64):
        found = onto_simplex(torch.tensor([0.3, 0.3, 2e9, 0.4], dtype=dtype))
        assert found.tolist() == [0, 0, 1, 0]
    assert onto_simplex(torch.tensor([0.0, torch.inf])).isnan().all()
    attack = {"name": "gaussian", "tau": 1e10}
    dc.simulate(task, data, AFL(**LOCAL), attacks=attack, malicious=2, rounds=2, mode="vmap")


def test_a_mixture_stands_for_the_sender_that_it_was_made_for() -> None:
    x = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    mail = Mail.of({"x": x}, torch.arange(6) + 10, Context(1, 0, 20, Layout((), ()), torch.zeros(1)))
    mixed = NearestNeighborMixing(f=3).prepare(mail.ctx, mail)
    assert mixed.clients.tolist() == list(range(10, 16))


@pytest.mark.parametrize(("share", "of", "wanted"), [(0.07, 100, 7), (0.14, 50, 7), (0.28, 25, 7), (0.2, 6, 2)])
def test_a_share_of_attackers_is_rounded_up_from_what_it_is(share: float, of: int, wanted: int) -> None:
    assert TrimmedMean(f=share).attackers(of) == wanted


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("fedamp", {"aggregator": "krum"}, "aggregator: not with the method 'fedamp'"),
        ("fedamp", {"own_start": True}, "own_start: not with the method 'fedamp'"),
        ("fed+", {"aggregator": "krum"}, "aggregator: not with the method 'fed.'.*aggregation='run'"),
        ("l2sgd", {"newcomers": 2}, "newcomers: not with the method 'l2sgd'"),
    ],
)
def test_what_would_be_ignored_is_refused(
    task: dc.Task, data: dc.FederatedData, method: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        dc.simulate(task, data, method, rounds=1, **settings)


def test_who_sends_nothing_can_stand_beside_those_who_are_attacked(task: dc.Task, data: dc.FederatedData) -> None:
    how: dict[str, Any] = {"attacks": "alie", "malicious": 1, "aggregator": ["nnm", "norm-clipping"]}
    compared = dc.compare(task, data, ["fedavg", "local"], rounds=1, **how)
    assert len(compared.runs) == 2


def test_progress_shows_the_figure_of_the_tables(task: dc.Task, data: dc.FederatedData) -> None:
    shown: list[float] = []

    def progress(record: Record) -> None:
        if isinstance(record, Evaluated) and record.model == "personal":
            shown.append(record.mean("test"))

    how: dict[str, Any] = {"attacks": "flipped-labels", "malicious": 2, "newcomers": 1, "mode": "vmap"}
    run = dc.simulate(task, data, DITTO, rounds=2, progress=progress, **how)
    figures = run.summary()
    assert shown[-1] == pytest.approx(figures["personal.test_accuracy.mean@last"])
    assert figures["personal.test_accuracy.mean@last"] != figures["all.personal.test_accuracy.mean@last"]


@pytest.mark.parametrize("metric", ["auc", "f1", "balanced-accuracy"])
def test_early_stopping_knows_the_metrics(data: dc.FederatedData, metric: str) -> None:
    task = dc.Task(nn.Linear(4, 3).double(), metric=metric)
    stop = EarlyStopping(patience=1, figure=f"personal.valid_{metric}.mean", least=10.0)
    run = dc.simulate(task, data, DITTO, rounds=5, callbacks=[stop], mode="vmap")
    assert run.stopped is not None and run.stopped.round == 1
    with pytest.raises(SettingError, match="patience"):
        EarlyStopping(patience="3")  # type: ignore[arg-type]
