"""The personal methods in every execution mode, in chunks, with stragglers, codecs and attacks, and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import descant as dc
from descant.attacks import SignFlip
from descant.codecs import TopK
from descant.engine import Record, RoundRecord
from descant.errors import SettingError
from descant.methods import (
    APFL,
    EWC,
    L2SGD,
    MAPPER,
    MRMTL,
    SKL,
    Adam,
    FedALA,
    FedAMP,
    FedAvg,
    FedBN,
    FedPer,
    FedRep,
    FineTune,
    LGFedAvg,
    Method,
    PerFedAvg,
    PowerLaw,
)

WORK: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
SOLVER = FedAvg(lr=0.1, epochs=1, batch=4)
METHODS: dict[str, Method] = {
    "lg-fedavg": LGFedAvg(**WORK),
    "fedper": FedPer(lr=0.1, epochs=2, batch=4, layers=("0.bias", "2")),
    "fedrep": FedRep(head_epochs=2, momentum=0.5, **WORK),
    "fedrep, adam": FedRep(head_steps=2, optimizer=Adam(), **WORK | {"lr": 0.01}),
    "fedbn, named": FedBN(layers=("0",), **WORK),
    "finetune": FineTune(solver=SOLVER, **WORK),
    "finetune, after": FineTune(lam=0.5, after=2, solver=SOLVER, **WORK),
    "ewc": EWC(solver=SOLVER, **WORK),
    "ewc, after": EWC(after=2, solver=SOLVER, **WORK),
    "skl": SKL(solver=SOLVER, **WORK),
    "skl, after": SKL(after=2, solver=SOLVER, **WORK),
    "per-fedavg": PerFedAvg(alpha=0.1, **WORK),
    "per-fedavg, first order": PerFedAvg(alpha=0.1, hessian="none", adapt=2, **WORK),
    "apfl": APFL(**WORK),
    "apfl, scheduled": APFL(adaptive=True, momentum=0.5, **WORK | {"lr": PowerLaw(scale=0.2, power=-0.5)}),
    "mapper": MAPPER(**WORK),
    "l2sgd": L2SGD(p=0.5, **WORK),
    "mr-mtl": MRMTL(lam=0.5, **WORK),
    "fedamp": FedAMP(**WORK),
    "fedala": FedALA(ala_epochs=2, **WORK),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SETTINGS: dict[str, Any] = {"rounds": 4, "cohort": 7, "seed": 5, "stragglers": 0.5, "evaluate": 2}


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    """Eleven ragged clients."""
    clients = []
    for k, n in enumerate((6, 1, 9, 4, 13, 2, 7, 3, 11, 5, 8)):
        generator = torch.Generator().manual_seed(k)
        X = torch.randn(n + 3, 4, generator=generator, dtype=torch.float64)
        y = torch.randint(3, (n + 3,), generator=generator)
        clients.append({"test": (X[:3], y[:3]), "train": (X[3:], y[3:])})
    return dc.FederatedData.from_arrays(clients, classes=3)


def task() -> dc.Task:
    torch.manual_seed(2)
    return dc.Task(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double())


def run(data: dc.FederatedData, method: Method, **settings: Any) -> dc.Run:
    return dc.simulate(task(), data, method, **SETTINGS | {"mode": "vmap"} | settings)


def state(done: dc.Run) -> dict[str, Tensor]:
    simulation = done._simulation
    assert simulation is not None and done.collapse is None
    personal, _ = simulation.personal(simulation.everyone)
    return {"personal": personal, **simulation.store.leaves, **simulation.server.state}


def accounts(done: dc.Run) -> Any:
    """Figures that are sums of numbers may differ in the last digits, the others may not."""
    return [{name: v for name, v in row.items() if name not in ("seconds", "alpha")} for row in done.history.rounds]


def agree(one: dc.Run, other: dc.Run) -> None:
    ours, theirs = state(one), state(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[n].double(), theirs[n].double(), rtol=0, atol=1e-10) for n in ours)
    assert accounts(one) == accounts(other)


@pytest.mark.few(3)
@EVERY_METHOD
@pytest.mark.parametrize("trainers", ["cohort", pytest.param("everyone", marks=pytest.mark.slow)])
def test_chunks_and_the_loop_change_nothing(data: dc.FederatedData, method: Method, trainers: str) -> None:
    whole = run(data, method, trainers=trainers)
    agree(whole, run(data, method, trainers=trainers, chunk=3))
    agree(whole, run(data, method, trainers=trainers, mode="loop"))


@pytest.mark.slow
@EVERY_METHOD
def test_compiled_steps_give_what_vmap_gives(data: dc.FederatedData, method: Method) -> None:
    torch._dynamo.reset()
    compiled = run(data, method, mode="compile")
    assert compiled.config["execution"]["mode"] == "compile" and compiled.config["execution"]["fallbacks"] == []
    agree(compiled, run(data, method))


def interrupt(round: int) -> Callable[[Record], None]:
    def progress(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == round:
            raise KeyboardInterrupt

    return progress


@pytest.mark.few(2)
@EVERY_METHOD
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(
    data: dc.FederatedData, method: Method, tmp_path: Path, store: str
) -> None:
    how = {"store": store, "commit": 1}
    unbroken = run(data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        run(data, method, out=tmp_path / "run", progress=interrupt(3), **how)
    resumed = dc.resume(tmp_path / "run", task(), data)
    torch.testing.assert_close(state(resumed), state(unbroken), rtol=0, atol=0)
    assert resumed.rounds.drop("seconds").equals(unbroken.rounds.drop("seconds"))
    assert resumed.clients.equals(unbroken.clients)
    assert json.dumps(resumed.config) == json.dumps(unbroken.config)


@pytest.mark.few(2)
@pytest.mark.parametrize("layers", [(), ("0", "2")], ids=["nothing", "everything"])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_to_keep_nothing_or_everything_survives_a_disk(
    data: dc.FederatedData, tmp_path: Path, layers: tuple[str, ...], store: str
) -> None:
    """Leaves without a number, in the clients' state or in messages."""
    method = FedPer(layers=layers, **WORK)
    with pytest.raises(KeyboardInterrupt):
        run(data, method, out=tmp_path / "run", store=store, commit=1, progress=interrupt(3))
    resumed = dc.resume(tmp_path / "run", task(), data)
    torch.testing.assert_close(state(resumed), state(run(data, method)), rtol=0, atol=0)


@pytest.mark.few(1)
@EVERY_METHOD
@pytest.mark.parametrize(
    "aggregator",
    [
        "coordinate-median",
        pytest.param("k-loss", marks=pytest.mark.slow),
        pytest.param("centered-clipping", marks=pytest.mark.slow),
    ],
)
def test_attackers_codecs_and_robust_means_go_along(
    data: dc.FederatedData, method: Method, aggregator: str
) -> None:
    settings: dict[str, Any] = {"attacks": [SignFlip(tau=2.0, on="update")], "malicious": [0, 2, 9]}
    settings |= {"aggregator": aggregator, "codec": TopK(share=0.3), "stragglers": 0.0}
    if "aggregator" in method.refuses:
        with pytest.raises(SettingError, match="aggregator: not with the method"):
            run(data, method, **settings)
        return
    if aggregator == "k-loss" and method.held:
        with pytest.raises(SettingError, match="aggregator: 'k-loss' chooses among the messages of a round"):
            run(data, method, **settings)
        return
    done = run(data, method, **settings)
    agree(done, run(data, method, chunk=2, **settings))
    full = run(data, method, **settings | {"codec": "native"})
    sent = [sum(row["bytes_up"] for row in one.history.rounds) for one in (done, full)]
    assert 0 < sent[0] < sent[1]
    if aggregator == "k-loss":  # takes one message, which may be an honest one
        return
    honest = run(data, method, **settings | {"attacks": [], "malicious": 0})
    apart = (state(done)["personal"] - state(honest)["personal"]).abs().max()
    assert float(apart) > 1e-8, "the attack was felt"
