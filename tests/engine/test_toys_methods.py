"""The contract carries SCAFFOLD, AFL and L2SGD: each is what a plain loop over its clients computes."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from descant import FederatedData, Task
from descant.draws import uniform
from descant.engine.cohort import finished_share, sample
from descant.methods import AFL, L2SGD, Scaffold
from descant.methods.simplex import onto_simplex
from tests import held
from tests.engine.points import close

N, LR, SEED = 4, 0.1, 5


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk", [1, 4])
def test_scaffold_divides_by_the_steps_really_taken(
    run: Any, point: Task, points: FederatedData, means: Tensor, chunk: int
) -> None:
    method = Scaffold(lr=LR, steps=6, batch=None)
    done = run(method, task=point, data=points, rounds=6, cohort=3, stragglers=0.6, chunk=chunk)
    w, c, c_k, seen = point.start(), zeros(2), zeros(N, 2), set()
    for t in range(1, 7):
        cohort = sample(SEED, t, 3, torch.ones(N))
        dw, dc = zeros(2), zeros(2)
        for k, share in zip(cohort.tolist(), finished_share(SEED, t, cohort, 0.6).tolist(), strict=True):
            x, steps = w, ceil(6 * share)
            for _ in range(steps):
                x = x - LR * (x - means[k] + c - c_k[k])
            seen.add(steps)
            new = c_k[k] - c + (w - x) / (steps * LR)
            dw, dc = dw + (x - w) / 3, dc + (new - c_k[k]) / N
            c_k[k] = new
        w, c = w + dw, c + dc
    assert len(seen) > 2
    close(held.by_server(done)["w"], w)
    close(held.by_server(done)["c"], c)
    close(held.by_clients(done)["c_k"], c_k)


def simplex_by_bisection(y: list[float]) -> list[float]:
    """max(0, y - theta) with the theta for which it sums to 1."""
    low, high = min(y) - 1.0, max(y)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0.0, a - middle) for a in y) > 1 else (low, middle)
    return [max(0.0, a - high) for a in y]


def test_afl_draws_by_a_mixture_that_ascends_on_the_losses(run: Any, point: Task, points: FederatedData) -> None:
    method = AFL(lr=LR, steps=2, batch=None, gamma=0.3, draw="mixture")
    done = run(method, task=point, data=points, rounds=12, cohort=3)
    Y = [points.train.client(k)[1] for k in range(N)]
    w, mixture, cohorts = point.start(), [1 / N] * N, []
    for t in range(1, 13):
        u = uniform(SEED, "cohort", t, torch.arange(N)).tolist()
        keys = {k: np.log(u[k]) / mixture[k] for k in range(N) if mixture[k] > 0}
        cohort = sorted(sorted(keys, key=lambda k: -keys[k])[:3])
        cohorts.append(len(cohort))
        moved, raised = zeros(2), list(mixture)
        for k in cohort:
            x = w
            for _ in range(2):
                x = x - LR * (x - Y[k].mean(0))
            moved = moved + (x - w) / len(cohort)
            raised[k] += 0.3 * float((0.5 * (w - Y[k]).square().sum(1)).mean())
        w, mixture = w + moved, simplex_by_bisection(raised)
    assert min(mixture) == 0 and min(cohorts) < 3, "a client of no weight, and so a cohort that is smaller"
    close(held.by_server(done)["w"], w)
    close(held.by_server(done)["mixture"], torch.tensor(mixture, dtype=torch.float64))
    rows = done.history.rounds
    assert [row["cohort"] for row in rows] == cohorts
    assert [row["bytes_up"] for row in rows] == [c * 3 * 8 for c in cohorts], "two numbers and the loss"
    assert rows[0]["scored"] == sum(len(Y[k]) for k in sample(SEED, 1, 3, torch.ones(N)).tolist())


def test_the_projection_onto_the_simplex() -> None:
    for y in ([0.25] * 4, [2.0, 0.1, -3.0], [0.5, 0.4, 0.2]):
        expected = torch.tensor(simplex_by_bisection(y), dtype=torch.float64)
        close(onto_simplex(torch.tensor(y, dtype=torch.float64)), expected)


@pytest.mark.parametrize("chunk", [1, 4])
def test_l2sgd_goes_up_and_down_again_when_the_coin_says_so(
    run: Any, point: Task, points: FederatedData, means: Tensor, chunk: int
) -> None:
    method = L2SGD(p=0.4, lam=0.5, lr=LR, batch=None)
    done = run(method, task=point, data=points, rounds=12, chunk=chunk)
    x, talks = point.start().repeat(N, 1), []
    for t in range(1, 13):
        talks.append(float(uniform(SEED, "coin", t)) < 0.4)
        step = 0.5 / 0.4 * (x - x.mean(0)) if talks[-1] else (x - means) / 0.6
        x = x - LR * step
    assert 2 <= sum(talks) <= 10
    close(held.by_clients(done)["x"], x)
    rows = done.history.rounds
    for kind in ("bytes_up", "bytes_down"):
        assert [row[kind] for row in rows] == [N * 2 * 8 * talk for talk in talks]
    assert [row["gradients"] for row in rows] == [0 if talk else N for talk in talks]


def test_a_lost_model_gets_no_reply(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    method = L2SGD(p=0.9, lam=0.5, lr=LR, batch=None)
    done = run(method, task=point, data=points, rounds=6, lost=0.4)
    x, replies = point.start().repeat(N, 1), []
    for t in range(1, 7):
        if float(uniform(SEED, "coin", t)) >= 0.9:
            x = x - LR / 0.1 * (x - means)
            replies.append(0)
            continue
        arrives = uniform(SEED, "lost", t, torch.arange(N)) >= 0.4
        replies.append(int(arrives.sum()))
        x[arrives] = x[arrives] - LR * 0.5 / 0.9 * (x[arrives] - x[arrives].mean(0))
    assert len(set(replies)) > 1
    close(held.by_clients(done)["x"], x)
    assert [row["bytes_down"] for row in done.history.rounds] == [16 * reply for reply in replies]
