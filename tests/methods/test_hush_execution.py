"""Hush and the methods that agree on a sketch, in every execution mode, in chunks, with stragglers, and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.coupling import Dense, Hash
from descant.methods import Adam, Hush, Method, PFed1BS, PFedLMS, PowerLaw
from tests.methods.execution import (
    WORK,
    assert_a_resumed_run_ends_as_the_unbroken_one,
    assert_chunks_and_the_loop_change_nothing,
    assert_compiled_steps_give_what_vmap_gives,
)

METHODS: dict[str, Method] = {
    "hush": Hush(m=7, **WORK),
    "hush, four bits, a pool": Hush(m=0.2, bits=4, pool=2, beta=0.0, **WORK),
    "hush, many pieces": Hush(m=2, **WORK),  # of 43 parameters; compiled, few pieces have another way
    "hush, adam": Hush(m=7, optimizer=Adam(), **WORK | {"lr": 0.01}),
    "hush, scheduled": Hush(m=7, momentum=0.5, **WORK | {"lr": PowerLaw(scale=0.2, power=-0.5)}),
    "hush, hash": Hush(m=7, projection=Hash(fresh=True), **WORK),
    "hush, dense": Hush(m=7, projection=Dense(fresh=True), bits=None, **WORK),
    "pfed1bs": PFed1BS(m=9, lam=0.05, gamma=3.0, **WORK),
    "pfedlms": PFedLMS(m=9, lam=0.05, gamma=3.0, **WORK),
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@pytest.mark.few(1)
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
    assert_a_resumed_run_ends_as_the_unbroken_one(method, tmp_path, store=store, commit=1)
