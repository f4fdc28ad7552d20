"""A shared model that moves in a subspace drawn anew each round: only coordinates travel, and only once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from toys.subspace import Subspace

from descant import FederatedData, Task
from descant.coupling import Fold, Hadamard, Hash, Orthogonal, Projection, SeedOnly
from descant.draws import seed_of, uniform
from descant.engine.cohort import sample
from descant.methods import Ditto
from tests import held
from tests.engine.points import close

N, LR, SEED, ROUNDS = 4, 0.1, 5, 9
METHOD = Subspace(lr=LR, steps=3, batch=None, dim=1)


def arrives(t: int, k: int, lost: float) -> bool:
    return float(uniform(SEED, "lost", t, k)) >= lost


def plain(
    point: Task, means: Tensor, cohort: int, lost: float, projection: Projection = METHOD.projection
) -> tuple[list[Tensor], list[Tensor]]:
    """w before each round and after the last, with the u_t, as if everyone heard every round."""
    w, us = [point.start()], []
    for t in range(1, ROUNDS + 1):
        drawn = projection.build(seed_of(SEED, "projection", t), 1, point.start()[None])
        P, sent = drawn.lift(torch.ones(1, 1).double()), []
        for k in sample(SEED, t, cohort, torch.ones(N)).tolist():
            u = torch.zeros(1).double()
            for _ in range(3):
                u = u - LR * P @ (w[-1] + u @ P - means[k])
            if arrives(t, k, lost):
                sent.append(u)
        us.append(sum(sent) / len(sent) if sent else torch.zeros(1).double())
        w.append(w[-1] + us[-1] @ P)
    return w, us


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize(("cohort", "lost"), [(4, 0.0), (2, 0.0), (2, 0.5)])
def test_it_is_a_plain_loop_and_a_client_pays_for_the_rounds_that_it_missed(
    run: Any, point: Task, points: FederatedData, means: Tensor, cohort: int, lost: float, chunk: int
) -> None:
    done = run(METHOD, task=point, data=points, rounds=ROUNDS, cohort=cohort, lost=lost, chunk=chunk)
    w, us = plain(point, means, cohort, lost)
    close(held.shared(done), w[-1])
    close(METHOD.upto(ROUNDS, held.by_server(done)["log"]), torch.stack(us))
    known, kept, paid = [0] * N, point.start().repeat(N, 1), [0] * N
    for t in range(1, ROUNDS + 1):
        for k in sample(SEED, t, cohort, torch.ones(N)).tolist():
            paid[k] += 8 * (t - 1 - known[k])
            known[k], kept[k] = t - 1, w[t - 1]
    close(held.by_clients(done)["w"], kept)
    assert held.by_clients(done)["known"].tolist() == known
    assert done.history.spent[ROUNDS]["bytes_down"].tolist() == paid
    assert done.history.spent[ROUNDS]["bytes_up"].sum() == ROUNDS * cohort * 8
    close(held.personal(done), w[-1].repeat(N, 1))  # whoever deploys has built in all of it
    assert (len(set(known)) > 1) == (cohort < N)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "projection",
    [Hash(fresh=True), Fold(fresh=True), Hadamard(fresh=True), SeedOnly(fresh=True)],
    ids=lambda kind: kind.name,
)
def test_any_projection_can_be_drawn_anew_each_round(
    run: Any, point: Task, points: FederatedData, means: Tensor, projection: Projection
) -> None:
    method = replace(METHOD, projection=projection)
    done = run(method, task=point, data=points, rounds=ROUNDS, cohort=2)
    w, _ = plain(point, means, 2, 0.0, projection)
    (found,) = done.shared().parameters()
    close(found.detach().flatten(), w[-1])
    assert float((w[-1] - w[0]).abs().min()) > 1e-3, "in both directions of the plane, as no fixed line could"


@pytest.mark.slow
def test_subspaces_of_all_rounds_are_one_program(run: Any) -> None:
    for kind in (Hash, Fold, Hadamard, SeedOnly, Orthogonal):
        torch._dynamo.reset()
        counters.clear()
        method = Subspace(lr=0.1, steps=2, batch=3, dim=4, projection=kind(fresh=True))
        compiled = run(method, rounds=4, mode="compile")
        assert compiled.config["execution"]["fallbacks"] == []
        assert counters["stats"]["unique_graphs"] == 1
        vmapped = run(method, rounds=4)
        for one, other in zip(compiled.shared().parameters(), vmapped.shared().parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_a_round_without_mail_moves_nothing(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    silent = [t for t in range(1, ROUNDS + 1) if not any(arrives(t, k, 0.8) for k in range(N))]
    assert silent and silent[-1] < ROUNDS, "rounds in the middle"
    done = run(METHOD, task=point, data=points, rounds=ROUNDS, lost=0.8)
    w, us = plain(point, means, N, 0.8)
    assert [t for t in range(1, ROUNDS + 1) if not us[t - 1].any()] == silent
    close(held.shared(done), w[-1])


def test_it_solves_for_ditto(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    method = Ditto(solver=METHOD, lr=LR, steps=2, batch=None, lam=0.5)
    done = run(method, task=point, data=points, rounds=ROUNDS, cohort=2)
    w, _ = plain(point, means, 2, 0.0)
    v, paid, known = point.start().repeat(N, 1), [0] * N, [0] * N
    for t in range(1, ROUNDS + 1):
        for k in sample(SEED, t, 2, torch.ones(N)).tolist():
            for _ in range(2):
                v[k] = v[k] - LR * (v[k] - means[k] + 0.5 * (v[k] - w[t - 1]))
            paid[k] += 8 * (t - 1 - known[k])
            known[k] = t - 1
    close(held.personal(done), v)
    close(held.shared(done), w[-1])
    assert done.history.spent[ROUNDS]["bytes_down"].tolist() == paid
