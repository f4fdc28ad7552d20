"""Ditto, lp-proj and RSA in every execution mode, in chunks, with stragglers, and after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.coupling import BlockDiagonal, Hadamard, Hash, Orthogonal, PerLayer, SeedOnly, SparseSign
from descant.methods import RSA, Ditto, FedAvg, FedProx, LpProj, Method, PFedMe, PowerLaw, Stages
from tests.methods.execution import (
    WORK,
    assert_a_resumed_run_ends_as_the_unbroken_one,
    assert_chunks_and_the_loop_change_nothing,
    assert_compiled_steps_give_what_vmap_gives,
)

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


@pytest.mark.slow
@EVERY_METHOD
@pytest.mark.parametrize("trainers", ["cohort", "everyone"])
def test_chunks_and_the_loop_change_nothing(method: Method, trainers: str) -> None:
    assert_chunks_and_the_loop_change_nothing(method, trainers=trainers)


@pytest.mark.slow
@EVERY_METHOD
def test_compiled_steps_give_what_vmap_gives(method: Method) -> None:
    assert_compiled_steps_give_what_vmap_gives(method)


@pytest.mark.few(1)
@EVERY_METHOD
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_ends_as_the_unbroken_one_to_the_bit(method: Method, tmp_path: Path, store: str) -> None:
    """Stopped in the midst of fine-tuning, which began after round 2."""
    assert_a_resumed_run_ends_as_the_unbroken_one(method, tmp_path, store=store, commit=1)
