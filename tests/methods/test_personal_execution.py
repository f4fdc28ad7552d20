"""The personal methods in every execution mode, in chunks, with stragglers, codecs and attacks, and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from descant.attacks import SignFlip
from descant.codecs import TopK
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
from tests import held
from tests.methods.execution import (
    WORK,
    assert_a_resumed_run_ends_as_the_unbroken_one,
    assert_agree,
    assert_chunks_and_the_loop_change_nothing,
    assert_compiled_steps_give_what_vmap_gives,
    resumed,
    run,
)

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


@pytest.mark.few(1)
@EVERY_METHOD
@pytest.mark.parametrize("trainers", ["cohort", pytest.param("everyone", marks=pytest.mark.slow)])
def test_chunks_and_the_loop_change_nothing(method: Method, trainers: str) -> None:
    assert_chunks_and_the_loop_change_nothing(method, trainers=trainers)


@pytest.mark.slow
@EVERY_METHOD
def test_compiled_steps_give_what_vmap_gives(method: Method) -> None:
    assert_compiled_steps_give_what_vmap_gives(method)


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(method: Method, tmp_path: Path, store: str) -> None:
    assert_a_resumed_run_ends_as_the_unbroken_one(method, tmp_path, store=store, commit=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("layers", [(), ("0", "2")], ids=["nothing", "everything"])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_to_keep_nothing_or_everything_survives_a_disk(tmp_path: Path, layers: tuple[str, ...], store: str) -> None:
    """Leaves without a number, in the clients' state or in messages."""
    method = FedPer(layers=layers, **WORK)
    again = resumed(method, tmp_path, store=store, commit=1)
    torch.testing.assert_close(held.everything(again), held.everything(run(method)), rtol=0, atol=0)


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize(
    "aggregator",
    [
        "coordinate-median",
        pytest.param("k-loss", marks=pytest.mark.slow),
        pytest.param("centered-clipping", marks=pytest.mark.slow),
    ],
)
def test_attackers_codecs_and_robust_means_go_along(method: Method, aggregator: str) -> None:
    settings: dict[str, Any] = {"attacks": [SignFlip(tau=2.0, on="update")], "malicious": [0, 2, 9]}
    settings |= {"aggregator": aggregator, "codec": TopK(share=0.3), "stragglers": 0.0, "rounds": 8}
    if "aggregator" in method.refuses:
        with pytest.raises(SettingError, match="aggregator: not with the method"):
            run(method, **settings)
        return
    if aggregator == "k-loss" and method.held:
        with pytest.raises(SettingError, match="aggregator: 'k-loss' chooses among the messages of a round"):
            run(method, **settings)
        return
    done = run(method, **settings)
    assert_agree(done, run(method, chunk=2, **settings))
    full = run(method, **settings | {"codec": "native"})
    sent = [sum(row["bytes_up"] for row in one.history.rounds) for one in (done, full)]
    assert 0 < sent[0] < sent[1]
    if aggregator == "k-loss":  # takes one message, which may be an honest one
        return
    honest = run(method, **settings | {"attacks": [], "malicious": 0})
    apart = (held.personal(done) - held.personal(honest)).abs().max()
    assert float(apart) > 1e-8, "the attack was felt"
