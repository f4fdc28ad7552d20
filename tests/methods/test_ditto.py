"""Ditto's fine-tuning after the solver, and solvers that fall silent, beside a plain loop over clients."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.engine.cohort import finished_share
from descant.methods import FedAvg, LocalView, ServerView, Tree
from tests import held
from tests.held import personal, shared
from tests.methods.ditto_loop import Oracle, ditto, run
from tests.methods.runs import PARTICIPATION, SEED, column, far, who


class Resting(FedAvg):
    """FedAvg that rests in every second round: nothing travels, and nothing is learnt."""

    def silent(self, server: ServerView) -> bool:
        return server.ctx.round % 2 == 0

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return super().client(down, state, local) if down else ({}, state)


@pytest.fixture
def oracle(data: FederatedData, linear: Task, slope: Any) -> Any:
    """oracle(cohort, everyone): the loop on the clients of `data`."""
    return partial(Oracle, slope, linear.start().numpy(), data.train.sizes.tolist())


@pytest.mark.few(3)
@PARTICIPATION
@pytest.mark.parametrize("after", [1, 4])
def test_fine_tuning_is_the_loop_over_clients(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool, after: int
) -> None:
    done = run(linear, data, ditto(lam=0.8, after=after), **who(cohort, everyone))
    w, tuned = oracle(cohort, everyone).finetuned((0.8,), after)
    assert far(shared(done), w) <= 1e-10
    # A client that has not begun deploys w itself.
    assert far(personal(done), np.stack([tuned.get(k, [w])[0] for k in range(7)])) <= 1e-10
    assert held.by_clients(done)["begun"].tolist() == [k in tuned for k in range(7)]
    assert len(tuned) < 7 or cohort == 7 or everyone or after == 1
    assert far(w, linear.start()) > 1e-2


@pytest.mark.few(1)
@PARTICIPATION
def test_a_solver_that_falls_silent_leaves_the_last_model_that_was_heard(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool
) -> None:
    method = ditto(lam=0.8, solver=Resting(lr=0.3, steps=3, batch=None))
    done = run(linear, data, method, **who(cohort, everyone))
    w, v = oracle(cohort, everyone).joint((0.8,), silent=True)
    assert far(shared(done), w) <= 1e-10
    assert far(personal(done), np.stack([models[0] for models in v])) <= 1e-10
    assert all((row == 0) == (t % 2 == 1) for t, row in enumerate(column(done, "bytes_down")))
    assert column(done, "bytes_up")[1::2] == [0] * 3
    assert all(column(done, "gradients")), "personal models are trained in silent rounds, too"


def test_fine_tuning_over_a_solver_that_falls_silent_begins_with_its_last_model(
    data: FederatedData, linear: Task, oracle: Any
) -> None:
    """Round 4 would be a silent one of the solver's, but it is no longer the solver's."""
    done = run(linear, data, ditto(lam=0.8, after=3, solver=Resting(lr=0.3, steps=3, batch=None)), rounds=4)
    loop = oracle()
    w = loop.solve(loop.solve(loop.theta, 1), 3)
    assert far(shared(done), w) <= 1e-10
    assert far(personal(done), np.stack([loop.tune(k, w, w, 0.8) for k in range(7)])) <= 1e-10


@pytest.mark.few(1)
@PARTICIPATION
def test_what_travels_and_what_is_computed_in_fine_tuning(
    data: FederatedData, linear: Task, oracle: Any, cohort: int, everyone: bool
) -> None:
    """A client hears w* once, when it begins; nothing goes up. The solver rests, and before it v does."""
    settings = who(cohort, everyone)
    done = run(linear, data, ditto(lam=0.8, after=3), **settings)
    busy = 7 if everyone else cohort
    assert column(done, "gradients") == [busy * 3] * 3 + [busy * 4] * 3
    told = [set[int]()]
    for t in (4, 5, 6):
        told.append(told[-1] | set(oracle(cohort, everyone).who(t)[1]))
    begin = [len(now) - len(before) for before, now in pairwise(told)]
    assert column(done, "bytes_down") == [15 * 8 * n for n in [busy] * 3 + begin]
    alone = run(linear, data, FedAvg(lr=0.3, steps=3, batch=None), **settings | {"rounds": 3})
    assert column(done, "bytes_up") == column(alone, "bytes_up") + [0] * 3
    assert column(done, "received") == [cohort] * 3 + [0] * 3


def test_nothing_is_lost_where_nothing_is_sent(data: FederatedData, linear: Task) -> None:
    done = run(linear, data, ditto(after=3), stragglers=1.0)
    late = [(finished_share(SEED, t, torch.arange(7), 1.0) * 3).ceil() < 3 for t in (1, 2, 3)]  # of three steps
    assert column(done, "lost") == [int(few.sum()) for few in late] + [0] * 3 and sum(map(sum, late)) > 9
