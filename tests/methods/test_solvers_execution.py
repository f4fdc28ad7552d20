"""Global solvers and fair methods in every execution mode, in chunks, under Ditto, and after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import descant as dc
from descant.attacks import RandomLabels, SignFlip
from descant.codecs import Float16, TopK
from descant.engine import Record, RoundRecord
from descant.methods import (
    AFL,
    QFFL,
    TERM,
    Ditto,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedMGDA,
    FedYogi,
    Method,
    PowerLaw,
    Scaffold,
)

WORK: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
EPOCHS: dict[str, Any] = {"lr": 0.1, "epochs": 2, "batch": 4}
METHODS: dict[str, Method] = {
    "scaffold, I": Scaffold(**EPOCHS, option="I", server_lr=0.8),
    "scaffold, II": Scaffold(lr=PowerLaw(scale=0.1), epochs=1, batch=4),
    "fedavgm": FedAvgM(**EPOCHS, stragglers="keep"),
    "fedadagrad": FedAdagrad(**WORK),
    "fedyogi": FedYogi(**WORK, stragglers="keep"),
    "fedadam": FedAdam(**WORK, momentum=0.5),
    "q-ffl": QFFL(**EPOCHS, q=2.0, stragglers="keep"),
    "afl": AFL(**WORK, gamma=0.1),
    "afl, mixture": AFL(**WORK, gamma=0.1, draw="mixture", stragglers="keep"),
    "term": TERM(**EPOCHS, t=2.0, stragglers="keep"),
    "fedmgda+": FedMGDA(**WORK, epsilon=0.3, server_lr=PowerLaw(scale=0.5), stragglers="keep"),
}
METHODS |= {f"ditto over {name}": Ditto(lam=0.5, solver=solver, **WORK) for name, solver in METHODS.items()}
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
    """All that the parties hold in the end."""
    simulation = done._simulation
    assert simulation is not None and done.collapse is None
    personal, _ = simulation.personal(simulation.everyone)
    return {"personal": personal, **simulation.store.leaves, **simulation.server.state}


def accounts(done: dc.Run) -> Any:
    loose = ("seconds", "mixture_gap")  # which is a matter of rounding
    return [{name: v for name, v in row.items() if name not in loose} for row in done.history.rounds]


def agree(one: dc.Run, other: dc.Run) -> None:
    ours, theirs = state(one), state(other)
    assert ours.keys() == theirs.keys()
    assert all(float((ours[name].double() - theirs[name].double()).abs().max()) <= 1e-10 for name in ours)
    assert accounts(one) == accounts(other)


@pytest.mark.few(4)
@EVERY_METHOD
def test_chunks_and_the_loop_change_nothing(data: dc.FederatedData, method: Method) -> None:
    whole = run(data, method)
    agree(whole, run(data, method, chunk=3))
    agree(whole, run(data, method, mode="loop"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaffold, I", "scaffold, II", "fedadam", "q-ffl", "ditto over scaffold, I"])
def test_compiled_steps_give_what_vmap_gives(data: dc.FederatedData, name: str) -> None:
    """All steps that there are: those of the other methods are q-FFL's."""
    torch._dynamo.reset()
    compiled = run(data, METHODS[name], mode="compile")
    assert compiled.config["execution"]["mode"] == "compile" and compiled.config["execution"]["fallbacks"] == []
    agree(compiled, run(data, METHODS[name]))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("ditto")])
def test_the_shared_model_of_ditto_is_its_solvers(data: dc.FederatedData, name: str) -> None:
    over, alone = run(data, METHODS[name]), run(data, METHODS[name.removeprefix("ditto over ")])
    ours, theirs = (list(done.shared().parameters()) for done in (over, alone))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    for kind in ("bytes_up", "bytes_down", "received"):
        assert [row[kind] for row in over.history.rounds] == [row[kind] for row in alone.history.rounds]


def interrupt(round: int) -> Callable[[Record], None]:
    def progress(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == round:
            raise KeyboardInterrupt

    return progress


HARSH: dict[str, Any] = {"codec": TopK(share=0.3), "attacks": [SignFlip(tau=1.0)], "malicious": 2, "lost": 0.2}


@pytest.mark.few(2)
@EVERY_METHOD
@pytest.mark.parametrize("how", [{"store": "memory", "commit": 1}, {"store": "disk"} | HARSH], ids=["", "harsh"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(
    data: dc.FederatedData, method: Method, tmp_path: Path, how: dict[str, Any]
) -> None:
    unbroken = run(data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        run(data, method, out=tmp_path / "run", progress=interrupt(3), **how)
    resumed = dc.resume(tmp_path / "run", task(), data)
    torch.testing.assert_close(state(resumed), state(unbroken), rtol=0, atol=0)
    assert resumed.rounds.drop("seconds").equals(unbroken.rounds.drop("seconds"))
    assert resumed.clients.equals(unbroken.clients)
    assert json.dumps(resumed.config) == json.dumps(unbroken.config)


@pytest.mark.few(1)
@EVERY_METHOD
def test_it_learns_with_half_precision_and_under_poisoned_labels(data: dc.FederatedData, method: Method) -> None:
    how: dict[str, Any] = {"codec": Float16(), "downlink": Float16(), "attacks": [RandomLabels()], "malicious": [3]}
    done = run(data, method, cohort=None, stragglers=0.0, rounds=12, evaluate=12, **how)
    losses = [done.history.evaluated["personal"][t]["train_loss"].mean() for t in (0, 12)]
    assert losses[1] < losses[0]
