"""Calls from Python with what cannot be meant: an error of ours that names the field, and nothing of torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import descant as dc
from descant.aggregators import GeometricMedian, Mean
from descant.attacks import SignFlip
from descant.catalog import build
from descant.coupling import Identity, Orthogonal
from descant.data import DataError
from descant.engine import Evaluation
from descant.errors import NoFiguresWarning, SettingError, TaskError
from descant.experiment.declaration import Call, declared
from descant.kinds import BASES, CATALOG
from descant.methods import Ditto, FedAvg, FedPlus, FedProx, LpProj, PFedMe
from tests.bad_input.calling import without_training

INF, NAN = float("inf"), float("nan")
DATA = dc.datasets.synthetic(clients=4, samples=20, dim=4, classes=3)
X, Y = np.eye(5, dtype=np.float32), np.arange(5)
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    2.5,
    INF,
    NAN,
    "",
    "junk",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
    object(),
    int,
    10**30,
]


def simulate(task: Any = None, data: Any = DATA, method: Any = "fedavg", **settings: Any) -> object:
    with without_training():
        return dc.simulate(task or nn.Linear(4, 3), data, method, **({"rounds": 2} | settings))


def arrays(**settings: Any) -> dc.FederatedData:
    return dc.FederatedData.from_arrays([(X, Y)], **settings)


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: FedAvg(lr="fast"), "FedAvg.lr = 'fast': it must be a number"),
    (lambda: FedAvg(lr=INF), "FedAvg.lr = inf: it must be a finite number"),
    (lambda: FedAvg(lr=True), "FedAvg.lr = True"),
    (lambda: FedAvg(lr=None), "FedAvg.lr = None"),
    (lambda: FedAvg(weighted="no"), "FedAvg.weighted = 'no': it must be true or false"),
    (lambda: FedAvg(steps=1.5), "FedAvg.steps = 1.5: it must be a positive whole number or nothing"),
    (lambda: FedAvg(optimizer="adam"), "FedAvg.optimizer = 'adam': that is the name of one; .* Adam()"),
    (
        lambda: FedAvg(optimizer="adamw"),
        "'adamw': it must be an object of Optimizer, such as SGD, Momentum or Adam",
    ),
    (lambda: FedProx(mu=INF), "FedProx.mu = inf"),
    (lambda: Ditto(lam=INF), "Ditto.lam = inf"),
    (lambda: Ditto(lam=[0.1, "x"]), r"Ditto.lam = \[0.1, 'x'\]"),
    (lambda: Ditto(solver="fedavg"), r"Ditto.solver = 'fedavg': that is the name of one; .* FedAvg\(\)"),
    (lambda: Ditto(solver=FedAvg), r"Ditto.solver = FedAvg: it is a class; make an object of it, as in FedAvg\(\)"),
    (lambda: LpProj(p=INF), "LpProj.p = inf"),
    (lambda: LpProj(projection="orthogonal"), r"LpProj.projection = 'orthogonal': .* as in Orthogonal\(\)"),
    (lambda: LpProj(projection=Orthogonal), "LpProj.projection = Orthogonal: it is a class"),
    (lambda: LpProj(projection=3), "LpProj.projection = 3: it must be an object of Projection"),
    (lambda: FedPlus(layers=3), "FedPlus.layers = 3"),
    (lambda: FedPlus(penalty="l1"), r"FedPlus.penalty = 'l1': .* as in L1Norm\(\)"),
    (lambda: PFedMe(reset="no"), "PFedMe.reset = 'no'"),
    (lambda: GeometricMedian(cap=2.5), "GeometricMedian.cap = 2.5"),
    (lambda: SignFlip(tau="a"), "SignFlip.tau = 'a'"),
    (lambda: Evaluation(every=2.5), "Evaluation.every = 2.5"),
    (lambda: Evaluation(parts="train"), "Evaluation.parts = 'train'"),
    (lambda: dc.datasets.synthetic(clients=2.5), "synthetic: clients = 2.5: it must be a whole number"),
    (lambda: dc.datasets.synthetic(clients="x"), "synthetic: clients = 'x'"),
    (lambda: dc.datasets.synthetic(alpha="x"), "synthetic: alpha = 'x'"),
    (lambda: dc.datasets.synthetic(balanced="no"), "synthetic: balanced = 'no': it must be true or false"),
    (lambda: dc.datasets.synthetic(clients=2, seed=2**64), "seed = 18446744073709551616"),
    (lambda: dc.datasets.digits(seed=-1), "seed = -1"),
    (lambda: dc.datasets.digits(clients="3"), "Labels.clients = '3'"),
    (lambda: dc.datasets.digits(partition="iid"), "partition = 'iid': it must be an object"),
    (lambda: arrays(test="x"), "test = 'x': it must be a share"),
    (lambda: arrays(valid=True), "valid = True: it must be a share"),
    (lambda: arrays(seed="x"), "seed = 'x': it must be a whole number"),
    (lambda: arrays(seed=1.5), "seed = 1.5: it must be a whole number"),
    (lambda: arrays(classes="x"), "classes = 'x': it must be a whole number"),
    (lambda: arrays(classes=-3), "classes = -3: it must be a whole number"),
    (lambda: dc.FederatedData.from_arrays(5), "clients are a int: give a list of pairs"),  # type: ignore[arg-type]
    (lambda: dc.FederatedData.from_arrays("ab"), "clients are a str"),  # type: ignore[arg-type]
    (lambda: dc.FederatedData.from_folder(3), "folder is a int: give the path"),  # type: ignore[arg-type]
    (lambda: dc.FederatedData.from_datasets(3, [0]), "the data set is a int: give one with a length"),  # type: ignore[arg-type]
    (lambda: simulate(task=3), "task is a int: it must be a task"),
    (lambda: simulate(task=nn.Linear), "task is the class Linear; make an object of it"),
    (lambda: simulate(data=[DATA]), "data is a list: it must be a descant.FederatedData"),
    (lambda: simulate(method=FedAvg), r"method = FedAvg: it is a class; make an object of it, as in FedAvg\(\)"),
    (lambda: simulate(method="fedavgg"), "method: there is no method called 'fedavgg'"),
    (lambda: simulate(method={"name": "fedavg", "lr": INF}), "method.lr = inf"),
    (lambda: simulate(method=Ditto(after=2)), "method.after = 2: it must be below rounds = 2"),
    (lambda: simulate(method=LpProj(dim=16)), "method.dim = 16: it must be at most 15"),
    (lambda: simulate(method=LpProj(dim=3, projection=Identity())), "method.dim = 3: it must be left out, since"),
    (lambda: simulate(aggregator=Mean), "aggregator = Mean: it is a class"),
    (lambda: simulate(rounds=1.5), "rounds = 1.5"),
    (lambda: simulate(seed=-1), "seed = -1"),
    (lambda: simulate(seed=2**64), "seed = 18446744073709551616"),
    (lambda: simulate(threads=100_000), "threads = 100000"),
    (lambda: simulate(sampling="size"), "sampling = 'size': it must be 'uniform' where everyone takes part"),
    (lambda: simulate(attacks=SignFlip), "attacks = SignFlip: it is a class"),
    (
        lambda: simulate(task=nn.Linear(4, 2)),
        r"labels reach 2 \(client '\d', train\), and the model gives 2 outputs",
    ),
    (lambda: simulate(task=nn.Linear(4, 1)), "labels reach 2 .*, and the model gives 1 output: give it 3 or more"),
    (lambda: simulate(task=dc.Task(nn.Linear(4, 3), "squared_error")), "use the loss 'cross_entropy'"),
    (lambda: dc.resume("nowhere"), "nowhere holds no run"),
    (lambda: dc.resume(3), "folder = 3: it must be the path"),  # type: ignore[arg-type]
    (lambda: dc.load(3), "folder = 3: it must be the path"),  # type: ignore[arg-type]
    (lambda: dc.Task(nn.Linear(2, 2), "mse"), "there is no loss called 'mse'"),
    (lambda: dc.Task(nn.Linear), "Task.model must be a torch.nn.Module"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[said[:40] for _, said in CALLS])
def test_a_call_that_cannot_be_meant_is_refused_by_name(call: Callable[[], object], said: str) -> None:
    with pytest.raises((SettingError, TaskError, DataError), match=said):
        call()


PARTS = [(kind, name) for kind in BASES for name in CATALOG[kind]]


@pytest.mark.few(10)
@pytest.mark.parametrize(("kind", "name"), PARTS, ids=[f"{kind} {name}" for kind, name in PARTS])
def test_no_field_of_a_part_takes_junk_with_an_error_that_is_not_ours(kind: str, name: str) -> None:
    cls: Any = CATALOG[kind][name]
    needed = {"clients": 4, "scale": 1.0, "values": ((1, 1.0),)}
    given = {f.name: needed[f.name] for f in fields(cls) if f.init and f.name in needed}
    for field in (f.name for f in fields(cls) if f.init):
        for junk in JUNK:
            _refused_or_made(lambda f=field, j=junk: cls(**(given | {f: j})), field)
            _refused_or_made(
                lambda f=field, j=junk: build(kind, {"name": name, **given, f: j}, path="here"), "here"
            )


def _refused_or_made(make: Callable[[], object], named: str) -> None:
    try:
        make()
    except (SettingError, TaskError, DataError) as error:
        assert named in str(error) and len(str(error)) < 1500


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_no_setting_of_a_model_takes_junk_with_an_error_that_is_not_ours(name: str) -> None:
    for field in list(signature(CATALOG["models"][name]).parameters)[1:]:
        for junk in [*JUNK, [0], [-1], [2.5], ["a"]]:
            _refused_or_made(
                lambda f=field, j=junk: build("models", {"name": name, f: j}, DATA, path="here"), "here"
            )


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["digits", "synthetic", "fedplus-synthetic", "folder", "mapped"])
def test_no_setting_of_data_takes_junk_with_an_error_that_is_not_ours(name: str, tmp_path: Path) -> None:
    small = {"clients": 2, "samples": 9, "dim": 2} if name == "synthetic" else {}
    small = {"folder": str(tmp_path)} if name in ("folder", "mapped") else small
    for field in signature(CATALOG["datasets"][name]).parameters:
        for junk in JUNK if field != "folder" else ["", "junk", "a\0b", 3, None]:
            _refused_or_made(
                lambda f=field, j=junk: build("datasets", {"name": name, **small, f: j}, path="here"), ""
            )


@pytest.mark.parametrize("name", [n for n, e in declared(Call).items() if n not in ("out", "progress")])
def test_no_setting_of_a_run_takes_junk_with_an_error_that_is_not_ours(name: str) -> None:
    for junk in JUNK:
        try:
            simulate(**{name: junk})
        except (SettingError, TaskError, DataError) as error:
            assert name in str(error)
        except SystemExit:
            pass  # it would have been trained


def test_a_module_and_no_attacks_are_taken_for_what_they_are() -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    one = dc.simulate(module, DATA, "fedavg", rounds=1, attacks=None, mode="vmap")  # type: ignore[arg-type]
    other = dc.simulate(dc.Task(module), DATA, "fedavg", rounds=1, mode="vmap")
    assert one.clients.equals(other.clients) and one.config["attacks"] == []


def test_a_high_label_that_a_few_examples_do_not_show_is_found_before_training() -> None:
    far = {"ann": (X, Y % 2), "bob": (X, np.array([0, 1, 0, 1, 7]))}
    data = dc.FederatedData.from_arrays(far, test=0.0, valid=0.0, classes=8)
    with pytest.raises(
        TaskError, match=r"labels reach 7 \(client 'bob', train\), and the model gives 2 outputs: give"
    ):
        simulate(task=nn.Linear(5, 2), data=data)


def test_numbers_in_the_place_of_labels_are_told_which_loss_to_take() -> None:
    data = dc.FederatedData.from_arrays([(X, Y.astype(np.float32))])
    with pytest.raises(
        TaskError, match=r"'cross_entropy' needs labels, .*\(float32\): use the loss 'squared_error'"
    ):
        simulate(task=nn.Linear(5, 3), data=data)
    with pytest.raises(TaskError, match=r"gives 3 an example of data 'arrays', for 1: give the model as many"):
        simulate(task=dc.Task(nn.Linear(5, 3), "squared_error"), data=data)


@pytest.mark.parametrize("malicious", [1.0, 4, [0, 1, 2, 3]])
def test_a_run_of_attackers_alone_says_that_its_figures_will_be_nan(malicious: Any) -> None:
    with pytest.warns(NoFiguresWarning, match="malicious: all clients attack"), pytest.raises(SystemExit):
        simulate(attacks=SignFlip(), malicious=malicious)


def test_a_run_without_test_examples_says_that_its_figures_will_be_nan() -> None:
    data = dc.FederatedData.from_arrays([(X, Y)], test=0.0)
    with pytest.warns(NoFiguresWarning, match="no client has test examples"), pytest.raises(SystemExit):
        simulate(task=nn.Linear(5, 5), data=data)
    with pytest.raises(SystemExit):  # and nothing where nobody asks for them
        simulate(task=nn.Linear(5, 5), data=data, evaluate={"parts": ["train"]})
