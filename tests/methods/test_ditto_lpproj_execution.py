"""Ditto, lp-proj and RSA in every execution mode, in chunks, with stragglers, and after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import descant as dc
from descant.coupling import BlockDiagonal, Hadamard, Hash, Orthogonal, PerLayer, SeedOnly, SparseSign
from descant.engine import Record, RoundRecord
from descant.methods import RSA, Ditto, FedAvg, FedProx, LpProj, Method, PFedMe, PowerLaw, Stages

WORK: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
SOLVER = FedAvg(lr=0.1, epochs=1, batch=4)
GROWING = PowerLaw(scale=2.0, power=0.5)
METHODS = {
    "ditto, chosen": Ditto(lam=(0.1, 1.0, 2.0), solver=SOLVER, **WORK),
    "ditto, fine-tuned": Ditto(lam=0.5, after=2, solver=SOLVER, **WORK),
    "ditto, fine-tuned and chosen": Ditto(lam=(0.1, 1.0, 2.0), after=2, solver=FedProx(mu=0.3, **WORK), **WORK),
    "rsa": RSA(lam=0.05, eta=PowerLaw(scale=0.3), R=2, **WORK),
    "lp-proj, orthogonal": LpProj(
        p=1.5, dim=5, projection=Orthogonal(), eta=Stages(values=((1, 0.3), (3, 0.1))), **WORK
    ),
    "lp-proj, hash": LpProj(p=2.0, dim=5, projection=Hash(), **WORK),
    "lp-proj, hadamard": LpProj(p=2.0, dim=5, projection=Hadamard(), **WORK),
    "lp-proj, seed-only": LpProj(p=1.0, dim=5, projection=SeedOnly(), **WORK),
    "lp-proj, blocks": LpProj(p=2.0, dim=5, projection=BlockDiagonal(blocks=3), **WORK),
    "lp-proj, one block": LpProj(p=2.0, dim=5, projection=BlockDiagonal(blocks=3, shared=True), **WORK),
    "lp-proj, per layer": LpProj(p=2.0, dim=5, projection=PerLayer(kind=SparseSign(nonzeros=1)), **WORK),
    "lp-proj, overflow": LpProj(p=1.0, dim=5, overflow="local", **WORK),
    "pfedme, scheduled": PFedMe(lr=0.1, lam=1.0, eta=0.3, nu=PowerLaw(scale=0.05), cap=9, batch=GROWING),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SETTINGS: dict[str, Any] = {"rounds": 4, "cohort": 7, "seed": 5, "stragglers": 0.5, "evaluate": 2}


@pytest.fixture(scope="module")
def data() -> dc.FederatedData:
    """Eleven ragged clients, with 0 to 9 validation examples."""
    clients = []
    for k, n in enumerate((6, 1, 9, 4, 13, 2, 7, 3, 11, 5, 8)):
        generator = torch.Generator().manual_seed(k)
        X = torch.randn(n + 12, 4, generator=generator, dtype=torch.float64)
        y = torch.randint(3, (n + 12,), generator=generator)
        cuts = {"test": slice(0, 3), "valid": slice(3, 3 + k % 10), "train": slice(12, None)}
        clients.append({p: (X[cut], y[cut]) for p, cut in cuts.items() if len(y[cut])})
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
    return [{name: v for name, v in row.items() if name != "seconds"} for row in done.history.rounds]


def agree(one: dc.Run, other: dc.Run) -> None:
    ours, theirs = state(one), state(other)
    assert ours.keys() == theirs.keys()
    assert all(float((ours[name].double() - theirs[name].double()).abs().max()) <= 1e-10 for name in ours)
    assert accounts(one) == accounts(other)


@pytest.mark.few(4)
@EVERY_METHOD
@pytest.mark.parametrize("trainers", ["cohort", "everyone"])
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


@pytest.mark.few(3)
@EVERY_METHOD
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(
    data: dc.FederatedData, method: Method, tmp_path: Path, store: str
) -> None:
    """Stopped in the midst of fine-tuning, which began after round 2."""
    how = {"store": store, "commit": 1}
    unbroken = run(data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        run(data, method, out=tmp_path / "run", progress=interrupt(3), **how)
    resumed = dc.resume(tmp_path / "run", task(), data)
    torch.testing.assert_close(state(resumed), state(unbroken), rtol=0, atol=0)
    assert resumed.rounds.drop("seconds").equals(unbroken.rounds.drop("seconds"))
    assert resumed.clients.equals(unbroken.clients)
    assert json.dumps(resumed.config) == json.dumps(unbroken.config)
