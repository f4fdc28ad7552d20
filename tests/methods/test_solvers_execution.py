"""Global solvers and fair methods in every execution mode, in chunks, under Ditto, and after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from descant.attacks import RandomLabels, SignFlip
from descant.codecs import Float16, TopK
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
from tests import held
from tests.methods.execution import (
    WORK,
    assert_a_resumed_run_ends_as_the_unbroken_one,
    assert_chunks_and_the_loop_change_nothing,
    assert_compiled_steps_give_what_vmap_gives,
    run,
)

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


@pytest.mark.slow
@EVERY_METHOD
def test_chunks_and_the_loop_change_nothing(method: Method) -> None:
    assert_chunks_and_the_loop_change_nothing(method)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaffold, I", "scaffold, II", "fedadam", "q-ffl", "ditto over scaffold, I"])
def test_compiled_steps_give_what_vmap_gives(name: str) -> None:
    """All steps that there are: those of the other methods are q-FFL's."""
    assert_compiled_steps_give_what_vmap_gives(METHODS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("ditto")])
def test_the_shared_model_of_ditto_is_its_solvers(name: str) -> None:
    over, alone = run(METHODS[name]), run(METHODS[name.removeprefix("ditto over ")])
    torch.testing.assert_close(held.shared(over), held.shared(alone), rtol=0, atol=1e-12)
    for kind in ("bytes_up", "bytes_down", "received"):
        assert [row[kind] for row in over.history.rounds] == [row[kind] for row in alone.history.rounds]


HARSH: dict[str, Any] = {"codec": TopK(share=0.3), "attacks": [SignFlip(tau=1.0)], "malicious": 2, "lost": 0.2}


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("how", [{"store": "memory", "commit": 1}, {"store": "disk"} | HARSH], ids=["", "harsh"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(
    method: Method, tmp_path: Path, how: dict[str, Any]
) -> None:
    assert_a_resumed_run_ends_as_the_unbroken_one(method, tmp_path, **how)


@pytest.mark.few(1)
@EVERY_METHOD
def test_it_learns_with_half_precision_and_under_poisoned_labels(method: Method) -> None:
    how: dict[str, Any] = {"codec": Float16(), "downlink": Float16(), "attacks": [RandomLabels()], "malicious": [3]}
    done = run(method, cohort=None, stragglers=0.0, rounds=12, evaluate=12, **how)
    losses = [done.history.evaluated["personal"][t]["train_loss"].mean() for t in (0, 12)]
    assert losses[1] < losses[0]
